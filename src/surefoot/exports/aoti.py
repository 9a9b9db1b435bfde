"""AOTInductor: the program compiled to machine code for this device; compared in a process without the recipe."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch._inductor import aoti_compile_and_package, aoti_load_package

from surefoot.exports.example_call import Call
from surefoot.exports.formats import CannotWrite, Job, Runner
from surefoot.exports.program import why
from surefoot.quiet import quiet

SUFFIX = ".aoti.pt2"
NAME = f"model{SUFFIX}"
TOLERANCE = 1e-5
COMPARED = "a process that has torch alone"
MERGES = False
SECONDS = 600

_RUN = """
import sys, torch
args, kwargs = torch.load(sys.argv[2], weights_only=True)
made = torch._inductor.aoti_load_package(sys.argv[1])(*args, **kwargs)
found = [each for each in torch.utils._pytree.tree_leaves(made) if isinstance(each, torch.Tensor)]
assert "surefoot" not in sys.modules
torch.save(found, sys.argv[3])
"""


def write(job: Job, path: Path) -> str:
    """Takes a C++ compiler and a minute or more."""
    program = job.program
    try:
        with quiet(), redirect_stderr(io.StringIO()):
            aoti_compile_and_package(program, package_path=str(path))
    except Exception as error:  # the compiler raises many types
        raise CannotWrite(why(error)) from error
    device = next((each.device.type for each in job.network.parameters()), "cpu")
    return f"for {device} alone"


def runner(job: Job, path: Path) -> Runner:
    """Runs the package in a new process, which imports torch and nothing of the recipe."""
    return lambda call: _run_apart(path, call)


def package_of(path: Path) -> Any:
    """The package in this process. It is machine code of whoever made it."""
    return aoti_load_package(str(path))


def _run_apart(path: Path, call: Call) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.pt", Path(folder) / "made.pt"
        torch.save((call.args, call.kwargs), given)
        typed = [sys.executable, "-I", "-W", "ignore", "-c", _RUN, str(path.resolve()), str(given), str(made)]
        done = subprocess.run(typed, capture_output=True, text=True, timeout=SECONDS, cwd=folder)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return torch.load(made, weights_only=True)
