"""Commands of surefoot in forks of one process that has loaded torch, so that each takes a fraction of a second.

`python commands.py` reads lines from stdin, each a JSON object with `words`, `folder` and `stderr`, a file. For each it
writes a line with the exit code. surefoot is loaded by each fork anew: its files may have changed.
"""

import json
import os
import runpy
import sys


def run(words: list[str], folder: str, stderr: str) -> int:
    """Runs a command as `python -m surefoot` would, in a fork. Returns its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        written = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(written, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.chdir(folder)
        sys.argv, sys.path[0] = ["surefoot", *words], ""
        runpy.run_module("surefoot", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    import torch._dynamo  # noqa: F401  loaded once, for all forks
    import typer.rich_utils  # noqa: F401

    assert "surefoot" not in sys.modules
    for line in sys.stdin:
        print(run(**json.loads(line)), flush=True)
