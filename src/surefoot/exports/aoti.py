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

from surefoot.exports.example_call import Call
from surefoot.exports.formats import CannotWrite, Job, Runner
from surefoot.exports.reasons import why
from surefoot.finetuning.quiet import quiet
from surefoot.torch_inside.compiled import ALONE, compile_package, load_package

SUFFIX = ".aoti.pt2"
NAME = f"model{SUFFIX}"
TOLERANCE = 1e-5
COMPARED = "a process that has torch alone"
MERGES = False
SECONDS = 600


def write(job: Job, path: Path) -> str:
    """Takes a C++ compiler and a minute or more."""
    program = job.program
    try:
        with quiet(), redirect_stderr(io.StringIO()):
            compile_package(program, str(path))
    except Exception as error:  # the compiler raises many types
        raise CannotWrite(why(error)) from error
    device = next((each.device.type for each in job.network.parameters()), "cpu")
    return f"for {device} alone"


def runner(job: Job, path: Path) -> Runner:
    """Runs the package in a new process, which imports torch and nothing of the recipe."""
    return lambda call: _run_apart(path, call)


def package_of(path: Path) -> Any:
    """The package in this process. It is machine code of whoever made it."""
    return load_package(str(path))


def _run_apart(path: Path, call: Call) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.pt", Path(folder) / "made.pt"
        torch.save((call.args, call.kwargs), given)
        typed = [sys.executable, "-I", "-W", "ignore", "-c", ALONE, str(path.resolve()), str(given), str(made)]
        done = subprocess.run(typed, capture_output=True, text=True, timeout=SECONDS, cwd=folder)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return torch.load(made, weights_only=True)
