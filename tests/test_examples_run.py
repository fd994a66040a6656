"""Promise: every program and every command that a page shows is run, and prints what the page says it prints."""
import tempfile
from pathlib import Path

import pytest
from support.claims import COUNTS
from support.examples import Skipped, differs, faults, find_examples, incomplete, run_example
from support.pages import page_paths, read_page


def all_examples():
    return [e for path in page_paths() for e in find_examples(path)]


def groups(examples):
    """Examples under one heading, in order: they share a folder."""
    found = {}
    for e in examples:
        if not e.fragment:
            found.setdefault(e.group, []).append(e)
    return found


GROUPS = groups(all_examples())


def run_group(examples, folder):
    """What differs, and why something was skipped."""
    wrong, skipped = [], []
    for example in examples:
        if example.fence.language != "console" and example.name:
            continue  # a file; commands run it
        try:
            wrong += run_example(example, folder)
        except Skipped as e:
            skipped.append(f"{example.where}: {e}")
            COUNTS[f"commands NOT run: {e}"] += len(example.commands)
    return wrong, skipped


def test_every_fence_is_complete_run_or_marked():
    wrong = faults(all_examples())
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("group", GROUPS)
def test_prints_what_the_page_shows(group, tmp_path):
    wrong, skipped = run_group(GROUPS[group], tmp_path)
    assert not wrong, "\n" + "\n".join(wrong)
    if skipped:
        pytest.skip("; ".join(skipped))


# The checker, on pages that are wrong


GOOD = """# Page
## One
```python
# one.py
print("two and two is", 2 + 2)
```
```console
$ python one.py
two and two is 4
```
"""


@pytest.fixture
def check(tmp_path):
    """A function: everything that the tests above have to say about a page of this text; it leaves the counts alone."""
    before = COUNTS.copy()

    def complaints(source):
        (tmp_path / "page.md").write_text(source)
        read_page.cache_clear()
        examples = find_examples("page.md", root=tmp_path)
        wrong = faults(examples)
        for group in groups(examples).values():
            with tempfile.TemporaryDirectory() as folder:
                wrong += run_group(group, Path(folder))[0]
        return "\n".join(wrong)

    yield complaints
    COUNTS.clear()
    COUNTS.update(before)


def test_a_good_page_passes(check):
    assert check(GOOD) == ""


@pytest.mark.parametrize(
    "right, wrong, complaint",
    [
        ("is 4", "is 5", "page.md:8: `python one.py` prints something else"),
        ("is 4", "is 4\nand more", "prints something else"),
        ("two and two is 4\n", "", "prints something else"),
        ("two and two is 4\n", "…\n", "the output shown is only …"),
        ("2 + 2", "2 + two", "page.md:4: `two` in line 2 of the fence is not defined"),
        ("2 + 2", "...", "page.md:4: `...` in line 2"),
        ("2 + 2)", "2 + 2", "page.md:4: not Python"),
        ("2 + 2)", "2 + 2)\n" + "#\n" * 40, "a program on a page has fewer than 40"),
        ("$ python one.py", "$ python two.py", "page.md:4: no command under «One» runs one.py"),
        ("$ python one.py", "$ python one.py; exit 3", "ends with 3, not 0"),
        ("print(", "import sys; sys.exit(3); print(", "ends with 3, not 0"),
        ("print(", "raise OSError('torn'); print(", "OSError: torn"),
        ("```console", "```console exit=1", "ends with 0, not 1"),
        ("```console", "```console anyorder", "the info string says `anyorder`"),
        ("$ ", "", "a console fence without a `$ command`"),
        ("# one.py\n", "# none\n", "can't open file"),
        ("```python", '```python fragment=""', 'fragment="…" needs a reason'),
        ("```python", '```python fragment="too long"', "1 of 2 fences are fragments"),
        ("# one.py\n", "import sys; sys.exit(3)\n", "page.md:4: ends with 3"),
    ],
)
def test_a_wrong_page_is_found(right, wrong, complaint, check):
    assert right in GOOD
    assert complaint in check(GOOD.replace(right, wrong, 1))


def test_commands_of_a_lower_heading_run_the_files_above_it_and_no_others(check):
    assert check(GOOD.replace("```console", "### Lower\n```console")) == ""
    assert "no command under «One» runs one.py" in check(GOOD.replace("```console", "## Other\n```console"))


def test_a_page_without_fences_is_not_a_pass(check):
    with pytest.raises(AssertionError, match="no fence was inspected"):
        check("# Page\nWords.\n")
    assert GROUPS


def test_a_launcher_that_the_machine_lacks_is_a_skip_not_a_pass(tmp_path, monkeypatch, check):
    monkeypatch.setattr("support.launchers.missing", lambda tool: f"{tool}: not installed")
    (tmp_path / "page.md").write_text("# Page\n```console\n$ srun -N2 hostname\nx\n```\n")
    COUNTS.clear()  # `check` puts them back
    wrong, skipped = run_group(find_examples("page.md", root=tmp_path), tmp_path)
    assert not wrong and skipped == ["page.md:3: slurm: not installed"]
    assert dict(COUNTS) == {"commands NOT run: slurm: not installed": 1}


@pytest.mark.parametrize(
    "shown, printed, any_order, same",
    [
        (["a", "b"], "a\nb\n", False, True),
        (["b", "a"], "a\nb\n", False, False),
        (["b", "a"], "a\nb\n", True, True),
        (["b", "b"], "a\nb\n", True, False),
        (["a"], "a\na\n", True, False),
        (["a", "…"], "x\na\ny\n", True, True),
        (["rank 0", "…"], "log\nrank 0\n", True, True),
        (["rank 0", "…"], "log\nrank 0\nrank 1\n", True, False),
        (["…", "b"], "x\ny\nb\n", False, True),
        (["…", "b"], "b\n", False, True),
        (["…", "b"], "b\nc\n", False, False),
        (["a … c"], "a b c\n", False, True),
        (["a … c"], "a b\nc\n", False, False),
        (["r 0", "r 1"], "r 1r 0\n\n", True, True),  # two ranks under torchrun
        (["r 0", "r 1"], "r 1r 0r 0\n", True, False),
        (["r 0", "r 1"], "r 1 r 0\n", True, False),
        (["… 1", "x 1"], "x 1\ny 1\n", True, True),  # the loose line must not take what only the other can have
        (["… 1", "… 1"], "x 1\n", True, False),
        (["a"], "[W1 2:1 a.cpp:2] [c10d] The hostname of the client socket cannot be retrieved.\na\n", False, True),
        (["a"], "[W1 2:1 a.cpp:2] [c10d] Something else.\na\n", False, False),
    ],
)
def test_comparison(shown, printed, any_order, same):
    assert (differs(shown, printed, any_order) == "") is same


def test_undefined_names_are_found_in_functions_and_known_ones_are_not():
    assert "`lost` in line 2" in incomplete("def f():\n    return lost\n")[0]
    good = "import os\nclass A:\n    x = 1\ndef f(a):\n    global G\n    G = a[..., 0]\n    return [os for b in G], A\n"
    assert incomplete(good) == []
