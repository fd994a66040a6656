"""Promise: the metrics room's api-reference.md has one place for each public name of `ignite.metrics`, and shows the
arguments and defaults that the installed library has.

A name stands in the signature of its entry, or, for the regression family, in the first column of a table. Signatures
are shown without annotations; `lambda x: x` is how the default `output_transform` is written.
"""

from __future__ import annotations

import inspect
import re

import ignite.metrics
from ignite.metrics import clustering, confusion_matrix, fairness, metric, regression
from ignite.metrics.gan import utils as gan
from proofs.metrics.facts import REFERENCE
from support.claims import COUNTS
from support.pages import Page, read_page

SIGNED = re.compile(r"^([\w.]+)\(", re.M)
WIDTH = 120  # a signature that is longer has one argument per line


def public_names() -> dict[str, object]:
    """Every public name of `ignite.metrics` and of the modules whose names it does not hand on; modules apart."""
    found = {n: getattr(ignite.metrics, n) for n in ignite.metrics.__all__}
    for module in (regression, clustering, fairness):
        found |= {n: v for n, v in vars(module).items() if inspect.isclass(v) and not n.startswith("_")}
    found |= {n: getattr(metric, n) for n in (*metric.__all__, "sync_all_reduce", "reinit__is_reduced")}
    found |= {n: getattr(confusion_matrix, n) for n in ("cmAccuracy", "cmPrecision", "cmRecall")}
    found["InceptionModel"] = gan.InceptionModel
    found["Accuracy.get_sequence_transform"] = ignite.metrics.Accuracy.get_sequence_transform
    return {n: v for n, v in found.items() if not inspect.ismodule(v)}


def rendered(name: str, value: object) -> str:
    """The call with its defaults, as the page prints it."""
    arguments = []
    for p in inspect.signature(value).parameters.values():
        if p.name == "self":
            continue
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f"={shown(p.default)}"
        arguments.append(f"{star}{p.name}{default}")
    line = f"{name}({', '.join(arguments)})"
    return line if len(line) <= WIDTH else f"{name}(\n" + "".join(f"    {a},\n" for a in arguments) + ")"


def shown(default: object) -> str:
    if inspect.isfunction(default):
        assert default(name) is name, "a default that is not lambda x: x"
        return "lambda x: x"
    if isinstance(default, metric.MetricUsage):
        return f"{type(default).__name__}()"
    return getattr(default, "__name__", None) or repr(str(default) if hasattr(default, "type") else default)


name = object()


def places(page: Page) -> dict[str, int]:
    """How often each name stands in a signature or in the first column of a table whose header says `metric`."""
    found: dict[str, int] = {}
    for entry in page.entries:
        names = [n for f in entry.fences if f.mark == "signature" for n in SIGNED.findall(f.text)]
        for table in entry.tables:
            if table.rows[0][0] == "metric":
                names += [row[0].strip("`") for row in table.rows[1:]]
        for n in names:
            found[n] = found.get(n, 0) + 1
    return found


def test_each_public_name_has_one_place():
    known, found = public_names(), places(read_page(REFERENCE))
    assert len(known) > 90
    missing = sorted(set(known) - set(found))
    assert not missing, f"{REFERENCE}: no entry for {missing}"
    assert not [n for n, times in found.items() if times > 1], "named twice"
    assert not set(found) - set(known), f"no public name: {set(found) - set(known)}"
    COUNTS["public names of ignite.metrics found"] += len(known)


def test_each_signature_is_the_installed_one():
    known, compared = public_names(), 0
    for entry in read_page(REFERENCE).entries:
        for fence in entry.fences:
            if fence.mark == "signature":
                wanted = "\n".join(rendered(n, known[n]) for n in SIGNED.findall(fence.text))
                assert fence.text.strip() == wanted, f"{REFERENCE}:{fence.line}: the installed one is\n{wanted}"
                compared += len(wanted.splitlines())
                named = [n for n in entry.heading.split(", ") if entry.level == 3]
                assert named in ([], SIGNED.findall(fence.text)), f"{entry.where}: heading and signatures differ"
    assert compared > 60
    COUNTS["signatures of ignite.metrics compared"] += compared


def test_contents_list_is_whole():
    page = read_page(REFERENCE)
    links = re.findall(r"\[`?([^\]`]+)`?\]\(#([^)]+)\)", page.source)
    anchors = {e.anchor: e.heading for e in page.entries}
    for text, anchor in links:
        assert anchors.get(anchor) == text, f"{REFERENCE}: [{text}](#{anchor}) leads to {anchors.get(anchor)}"
    missing = [
        e.heading
        for e in page.entries
        if e.level in (2, 3) and e.heading != "Contents" and e.anchor not in {a for _, a in links}
    ]
    assert not missing, f"{REFERENCE}: not in the contents: {missing}"
