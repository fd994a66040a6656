"""Other forms of a program that mean the same: what is written in one way in a test is written in five by users."""

from __future__ import annotations

import ast
from collections.abc import Callable

SETTINGS = ("nproc_per_node", "shuffle", "op", "init_method", "backend", "timeout", "with_barrier", "batch_size")


class Form(ast.NodeTransformer):
    """A change that keeps the meaning; `changed` counts its places, `before` is what the program then begins with."""

    def __init__(self):
        self.changed, self.before = 0, ""

    def asks_rank(self, node: ast.AST) -> bool:
        return "get_rank()" in ast.unparse(node)


class Conditions(Form):
    """A change of each `if` that asks for the rank."""

    def visit_If(self, node):
        self.generic_visit(node)
        if not self.asks_rank(node.test):
            return node
        self.changed += 1
        return self.other(node)

    def other(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        raise NotImplementedError


class NamedConditions(Conditions):
    """`if rank == 0:` becomes `chosen = rank == 0`, `if chosen:`."""

    def other(self, node):
        name = f"chosen_{self.changed}"
        return [ast.Assign([ast.Name(name, ast.Store())], node.test), ast.If(ast.Name(name), node.body, node.orelse)]


class SwappedBranches(Conditions):
    """`if a: b else: c` becomes `if not a: c else: b`."""

    def other(self, node):
        return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse or [ast.Pass()], node.body)


class RankOfAFunction(Form):
    """`idist.get_rank()` becomes `own_rank()`, a function of the file."""

    def visit_Call(self, node):
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "get_rank" and not node.args):
            return node
        self.changed += 1
        self.before = f"def own_rank():\n    return {ast.unparse(node)}"
        return ast.Call(ast.Name("own_rank"), [], [])


class SettingsOfAClass(Form):
    """`shuffle=True` becomes `shuffle=SETTINGS.shuffle_1`."""

    def visit_keyword(self, node):
        self.generic_visit(node)
        if node.arg not in SETTINGS or not isinstance(node.value, ast.Constant) or node.value.value is None:
            return node
        self.changed += 1
        name = f"{node.arg}_{self.changed}"
        self.before = (self.before or "SETTINGS = Settings()").replace(
            "SETTINGS =", f"    {name} = {ast.unparse(node.value)}\nSETTINGS =")
        return ast.keyword(node.arg, ast.Attribute(ast.Name("SETTINGS"), name))

    def visit_Module(self, node):
        self.generic_visit(node)
        self.before = f"class Settings:\n{self.before}"
        return node


class NamesImported(Form):
    """`idist.all_reduce` becomes `i_all_reduce`, imported from ignite.distributed."""

    def visit_Module(self, node):
        self.alias = next((a.asname for n in node.body if isinstance(n, ast.Import) for a in n.names
                           if a.name == "ignite.distributed" and a.asname), None)
        self.names = {}
        self.generic_visit(node)
        if self.names:
            self.before = f"from ignite.distributed import {', '.join(f'{a} as {b}' for a, b in self.names.items())}"
        return node

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if not (isinstance(node.value, ast.Name) and node.value.id == self.alias):
            return node
        self.changed += 1
        self.names[node.attr] = f"i_{node.attr}"
        return ast.Name(f"i_{node.attr}")


class Inside(Form):
    """The body of each function stands in a `with` block."""

    def block(self, body: list[ast.stmt]) -> ast.stmt:
        self.before = "import contextlib"
        return ast.With([ast.withitem(ast.parse("contextlib.nullcontext()", mode="eval").body)], body)

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node)):
            return node
        self.changed += 1
        doc = node.body[: ast.get_docstring(node, clean=False) is not None]
        node.body = [*doc, *([self.block(node.body[len(doc) :])] if len(node.body) > len(doc) else [])]
        return node


class InsideTry(Inside):
    """The body of each function stands in a `try` with a `finally`."""

    def block(self, body):
        return ast.Try(body, [], [], ast.parse("print('left')").body)


FORMS: dict[str, Callable[[], Form]] = {
    form.__name__: form for form in (
        NamedConditions, SwappedBranches, RankOfAFunction, SettingsOfAClass, NamesImported, Inside, InsideTry)
}


def other_form(text: str, name: str) -> str | None:
    """The program in that form; None where nothing in it can be written so."""
    form = FORMS[name]()
    tree = form.visit(ast.parse(text))
    if not form.changed:
        return None
    first = next((i for i, n in enumerate(tree.body) if not isinstance(n, (ast.Import, ast.ImportFrom)) and not (
        isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))), len(tree.body))
    tree.body[first:first] = ast.parse(form.before).body
    comments = [line for line in text.splitlines() if line.startswith("#")]
    return "\n".join([*comments, ast.unparse(ast.fix_missing_locations(tree)), ""])
