"""What the bundle's programs say of themselves: --help, from a fork of the test process, where torch is imported."""
from __future__ import annotations

import os
import runpy
import sys
import tempfile
from functools import cache
from pathlib import Path


@cache
def help_of(program: Path) -> str:
    """Output of `python PROGRAM --help`, which must end with 0."""
    with tempfile.TemporaryFile("w+") as out:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
                sys.argv, sys.path = [str(program), "--help"], [str(program.parent), *sys.path]
                runpy.run_path(str(program), run_name="__main__")
                code = 0
            except SystemExit as e:
                code = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        text = out.read()
    assert code == 0, f"{program.name} --help ends with {code}:\n{text}"
    return text
