"""Promise: folders and disks that are full, absent or read-only, /dev/shm among them, are named with the command that
mends them, or are no failure where the smoke does not need them.
"""

import os
import re
import resource
import tempfile

import pytest
from support import launchers
from support.smoke import faulty_smoke, finding_of, raise_in

private_mounts = pytest.mark.skipif(launchers.missing("mounts") is not None, reason=str(launchers.missing("mounts")))


def mounted(folder, *options):
    """For `prepare`: an empty tmpfs with these options over the folder, seen by this run alone."""

    def prepare():
        place = folder() if callable(folder) else folder
        launchers.in_private_mounts(("-t", "tmpfs", "-o", ",".join(options), "tmpfs", place))

    return prepare


@private_mounts
@pytest.mark.parametrize("options, says", [("ro", "/dev/shm cannot be used"), ("size=4k", "/dev/shm is too small")])
def test_no_shared_memory(options, says):
    result = faulty_smoke("gloo", prepare=mounted("/dev/shm", options))
    finding = finding_of(result)
    assert (result.code, finding["id"], finding["text"]) == (1, "no-shared-memory", says)
    assert re.match(r"mount .*/dev/shm, or .*--shm-size", finding["fix"])
    assert "shared_memory" in finding["evidence"][0]
    failed = {c["id"] for run in result.report["runs"] for c in run["checks"] if c["status"] == "fail"}
    assert failed == {"shared_memory"}


@private_mounts
@pytest.mark.parametrize("size", ["4k", "8k"])
def test_a_full_temporary_folder(size):
    """Which check finds no room depends on what was written before it; the cause is the same."""
    result = faulty_smoke("gloo", prepare=mounted(tempfile.gettempdir, f"size={size}"), tidy=False)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (1, "disk-full") and "export TMPDIR=" in finding["fix"]
    assert re.match(r"rank \d, (?:checkpoint_once|spawn|Parallel): raised ", finding["evidence"][0])


@private_mounts
def test_a_full_temporary_folder_of_which_the_error_says_nothing():
    def prepare():
        mounted(tempfile.gettempdir, "size=48k")()
        raise_in("new_group", EOFError("Ran out of input"))()

    finding = finding_of(faulty_smoke("gloo", prepare=prepare, tidy=False))
    assert finding["id"] == "disk-full" and re.search(
        rf": raised EOFError: Ran out of input; \d+ bytes are free in {re.escape(tempfile.gettempdir())}/",
        finding["evidence"][0],
    ), finding


@private_mounts
def test_a_temporary_folder_that_cannot_be_written():
    result = faulty_smoke("gloo", prepare=mounted(tempfile.gettempdir, "ro"), within=20)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (4, "no-temporary-folder")
    assert "Read-only file system" in finding["text"] and finding["fix"].startswith("export TMPDIR=")


def test_a_tmpdir_that_is_absent_is_passed_over():
    """Python takes the next of its places."""
    env = {"TMPDIR": "/no/such/folder"}
    result = faulty_smoke("serial", env=env, prepare=lambda: setattr(tempfile, "tempdir", None))
    assert result.code == 0 and result.report["diagnosis"] == []


def test_no_usable_temporary_folder_at_all():
    def prepare():
        tempfile.tempdir = None
        tempfile._candidate_tempdir_list = lambda: ["/no/such/folder"]

    result = faulty_smoke("serial", prepare=prepare, within=20)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (4, "no-temporary-folder") and "No usable temporary" in finding["text"]


@private_mounts
def test_a_working_folder_that_is_read_only(tmp_path):
    def prepare():
        mounted(tmp_path, "ro")()
        os.chdir(tmp_path)

    assert faulty_smoke("gloo", prepare=prepare).code == 0


def test_a_working_folder_that_was_removed(tmp_path):
    def prepare():
        (tmp_path / "gone").mkdir()
        os.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()

    assert faulty_smoke("gloo", prepare=prepare).code == 0


def test_a_low_limit_of_open_files():
    def prepare():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    result = faulty_smoke("gloo", "--nproc", "64", prepare=prepare, within=20)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (4, "open-files") and finding["fix"].startswith("ulimit -n ")
