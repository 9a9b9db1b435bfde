"""Replays a page: writes its files, types its commands one by one, and compares what they print with what it shows.

    python tests/replay.py README.md

A block ```python title="NAME"``` is a file. A block ```console``` holds commands after `$ ` and the lines they print;
`...` stands for anything, on a line of its own or within a line. A command must exit with 0, or with the number
in a comment `<!-- exit N -->` above its block. It prints the seconds that each command took.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_FILE = re.compile(r'```python title="([^"]+)"\n(.*?)```', re.DOTALL)
_CONSOLE = re.compile(r"(?:<!-- exit (\d+) -->\n)?```console\n(.*?)```", re.DOTALL)


def files(page: str) -> dict[str, str]:
    """The files that a page shows, by name."""
    return dict(_FILE.findall(page))


def commands(page: str) -> Iterator[tuple[str, list[str], int]]:
    """Each command of a page, the lines that it shows, and the exit code."""
    for code, block in _CONSOLE.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown.splitlines(), int(code or 0)


def missing(shown: list[str], printed: list[str]) -> str:
    """The first line of a page that was not printed after the one before it; empty if there is none."""
    at, free = 0, False
    for line in shown:
        if line == "...":
            free = True
            continue
        found = [number for number in range(at, len(printed)) if _is_line(line, printed[number])]
        if not found or (found[0] > at and not free):
            return line
        at, free = found[0] + 1, False
    return "" if free or at == len(printed) or not shown else f"after that: {printed[at]}"


def _is_line(shown: str, printed: str) -> bool:
    if shown.endswith("..."):  # which may stand for nothing, and then no space is before it
        shown = shown.removesuffix("...").rstrip() + "..."
    return re.fullmatch(".*".join(map(re.escape, shown.split("..."))), printed.rstrip()) is not None


def replay(page: Path, folder: Path) -> float:
    """Types all commands of a page in a folder. The seconds they took together."""
    text, total = page.read_text(), 0.0
    for name, content in files(text).items():
        (folder / name).write_text(content)
    for command, shown, code in commands(text):
        start = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        seconds = time.perf_counter() - start
        total += seconds
        print(f"{seconds:6.1f} s  {command}", flush=True)
        if done.returncode != code:
            raise SystemExit(f"{command}: exit {done.returncode}, not {code}\n{done.stdout}")
        if lost := missing(shown, [line.rstrip() for line in done.stdout.splitlines()]):
            raise SystemExit(f"{command}: the page shows a line that was not printed:\n{lost}\n\n{done.stdout}")
    return total


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        total = replay(Path(sys.argv[1]), Path(folder))
    print(f"{total:6.1f} s  all")


if __name__ == "__main__":
    main()
