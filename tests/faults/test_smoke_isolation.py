"""Promise: the smoke disturbs nothing: environment, files, sockets. What disturbs it is the matter of tests/faults/."""

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support.smoke import ForkedSmoke, forked_smoke, smoke_module

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux_only
def test_environment_working_folder_and_temporary_files_are_as_before(tmp_path):
    """The folder's name holds "environment": Ignite takes an init_method with "env" in it for env://."""
    before = {p for p in Path(".").iterdir()}
    result = forked_smoke("--format", "json", prepare=lambda: setattr(tempfile, "tempdir", str(tmp_path)))
    assert result.code == 0, result.out
    assert list(tmp_path.iterdir()) == []
    assert {p for p in Path(".").iterdir()} == before


def listening_addresses(pids: set[int]) -> set[str]:
    """Addresses, as the kernel writes them, on which these processes listen."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(fd))
            except OSError:
                pass
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.add(fields[1].partition(":")[0])
    return found


@linux_only
def test_only_loopback_is_listened_on():
    smoke = ForkedSmoke(["gloo"])
    seen = set()
    while not smoke.done():
        table, family = smoke_module().processes(), {smoke.pid}
        while grown := {p for p, row in table.items() if row[0] in family} - family:
            family |= grown
        seen |= listening_addresses(family)
        time.sleep(0.01)
    assert smoke.finish().code == 0
    assert seen and seen <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}, seen


def test_windows_is_told_in_one_line():
    result = forked_smoke("--help", prepare=lambda: setattr(sys, "platform", "win32"))
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
