"""The command `surefoot mcp`: let a coding assistant ask for plans and checks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import within
from surefoot.integrations.mcp.bounds import SECONDS, STEPS


def mcp(
    steps: Annotated[int, typer.Option("--steps", min=1, help="the most updates that one call may run")] = STEPS,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", callback=within(0, 86400, above=True), help="the most seconds that one call may take"
        ),
    ] = SECONDS,
) -> None:
    """Serves coding assistants: plan, watch, look, explain and compare over the Model Context Protocol.

    The assistant starts it and talks to it over stdin and stdout. It runs only files below the folder that it was
    started in. The assistant cannot raise the limits.

    Example, in the configuration of an assistant: `"command": "surefoot", "args": ["mcp", "--seconds", "300"]`
    """
    from surefoot.integrations.mcp.bounds import Bounds
    from surefoot.integrations.mcp.server import serve

    if sys.stdin.isatty():
        print("waiting for a coding assistant on stdin; Ctrl-C ends it. See docs/guide/mcp.md", file=sys.stderr)
    serve(Bounds(Path.cwd().resolve(), steps, seconds))
