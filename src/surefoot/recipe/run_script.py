"""Runs a script or a notebook to its end, as Python would, in this process."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surefoot.errors import did_you_mean
from surefoot.recipe.kind import is_notebook
from surefoot.source.owners import name_as_users, package_of
from surefoot.source.parsing import forget_files


class StopScript(BaseException):
    """Stops a script from inside its optimizer. No `except Exception` of the script catches it."""


def no_script(script: str) -> str:
    """What to say if there is no such script, with the name that was probably meant."""
    file, colon, _ = script.rpartition(":")
    if colon and Path(file).is_file():
        return f"no script {script}: a script is run as a whole; write {file}"
    near = did_you_mean(script, (path.name for path in Path().glob("*.py")))
    return f"no script {script}; {near}name a Python file or a notebook: surefoot watch train.py"


def run_script(script: str, args: Sequence[str]) -> dict[str, Any]:
    """Runs a script to its end, as `python script` would, or a notebook cell by cell.

    Returns its variables; none if it left by `sys.exit`.
    """
    forget_files()
    name_as_users(package_of(os.path.abspath(script)))
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        if is_notebook(script):
            from surefoot.recipe.cells import run_notebook  # needs packages of notebooks

            return run_notebook(script)
        return runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise
        return {}
    finally:
        sys.argv, sys.path[:] = argv, path
