"""plan, for a script: what its training step takes, without a GPU and without a change to the script."""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from surefoot.errors import WorldError
from surefoot.records.codec import from_json
from surefoot.records.plan import Plan
from surefoot.records.tries import Tried, Tries

UPDATES = 3
LARGEST = 1 << 20
LAST_LINES = 12
"""Lines of a script's own output that an error shows."""


def plan_script(
    command: Sequence[str],
    *,
    on: str = "cpu",
    updates: int = UPDATES,
    steps: int | None = None,
    epochs: float | None = None,
) -> Plan:
    """Runs a script on a card that is not there, up to a few updates, and says what its steps take.

    `command` is what you would type: `["train.py", "--batch-size", "8"]`, `["torchrun", ...]`, `["python", "-m", ...]`.
    `on` is the card, as in `plan`; `cpu` computes as this CPU does. `steps` or `epochs` give the length of the run, if
    the script does not say it. What the script prints is kept, and shown if it fails.
    """
    with TemporaryDirectory(prefix="surefoot-plan-") as folder:
        order, result, said = (Path(folder) / name for name in ("order.json", "result.json", "said.txt"))
        asked = {"command": list(command), "on": on, "updates": updates, "steps": steps, "epochs": epochs}
        order.write_text(json.dumps(asked), encoding="utf-8")
        with said.open("wb") as output:
            child = [sys.executable, "-m", "surefoot.planning.scripts.script_child", str(order), str(result)]
            code = subprocess.run(child, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False).returncode
        printed = said.read_text(encoding="utf-8", errors="replace")
        if not result.exists():
            raise WorldError(f"the script ended its process (exit code {code}) before a plan was made{_last(printed)}")
        return _read(result.read_text(encoding="utf-8"), printed)


def try_arguments(command: Sequence[str], tries: Sequence[str], *, on: str, updates: int = UPDATES) -> Tries:
    """Plans a script with every combination of arguments.

    Each of `tries` is an option with alternatives, `--batch-size 8,16,32`, or a flag, which is tried without and with.
    """
    choices = [_choices(each) for each in tries]
    found = [
        _tried(command, [word for words in combination for word in words], on, updates)
        for combination in itertools.product(*choices)
    ]
    ordered = sorted(found, key=lambda each: (not each.fits, each.seconds_per_unit))
    return Tries(_named(command), on, tuple(ordered))


def largest_argument(command: Sequence[str], argument: str, *, on: str, updates: int = UPDATES) -> Tries:
    """Searches the largest value for `{}` in an argument with which a script fits. Begins at 1 and doubles."""
    if "{}" not in argument:
        raise WorldError(f'{argument!r} has no place for a value: write for example "--batch-size {{}}"')
    found: dict[int, Tried] = {}

    def fits(value: int) -> bool:
        words = shlex.split(argument.replace("{}", str(value)))
        found[value] = _tried(command, words, on, updates)
        return found[value].fits

    low, high = 0, 1
    while high <= LARGEST and fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 16):  # to a sixteenth: the next steps change little
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if low == 0 and found[1].why:
        raise WorldError(found[1].why)
    ordered = sorted(found, key=lambda value: (not found[value].fits, -value if found[value].fits else value))
    return Tries(_named(command), on, tuple(found[value] for value in ordered))


def _choices(text: str) -> list[list[str]]:
    words = shlex.split(text)
    if len(words) == 1:
        return [[], words]
    return [[*words[:-1], value] for value in words[-1].split(",")]


def _tried(command: Sequence[str], words: Sequence[str], on: str, updates: int) -> Tried:
    try:
        return Tried(" ".join(words), plan_script([*command, *words], on=on, updates=updates))
    except WorldError as error:
        return Tried(" ".join(words), why=str(error).splitlines()[0])


def _named(command: Sequence[str]) -> str:
    return next((Path(word).name for word in command if word.endswith(".py")), command[0])


def _read(text: str, printed: str) -> Plan:
    found = json.loads(text)
    if "refused" in found:
        raise WorldError(found["refused"] + _last(printed))
    if "failed" in found:
        at = f" at {found['at']}" if found["at"] else ""
        raise WorldError(
            f"the script failed{at} on a card that is not there: {found['failed']}\n"
            f"if it runs on a GPU, this is a limit of the plan: see docs/guide/plan-a-script.md{_last(printed)}"
        )
    return from_json(Plan, text)


def _last(printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.strip()][-LAST_LINES:]
    return "\nits last output:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
