"""The command line, as a process of its own or in this one."""

import os
import subprocess
import sys

from typer.testing import CliRunner, Result

from surefoot.cli.main import app


def surefoot(*words: str) -> Result:
    """The command in this process: torch is here already."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, words)


def process(*words: str, cwd=None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with whatever that has to import."""
    wide = {**os.environ, "COLUMNS": "200"}
    return subprocess.run([sys.executable, "-m", "surefoot", *words], capture_output=True, text=True, cwd=cwd, env=wide)
