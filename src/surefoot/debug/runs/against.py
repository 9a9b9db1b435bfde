"""against: runs a script before and after a change, and names the first update, module and line that differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surefoot.debug.runs.replayed_pair import operation_text
from surefoot.debug.runs.trace import largest_difference
from surefoot.debug.runs.traced_script import results_in, trace_script
from surefoot.errors import RunError
from surefoot.records.codec import read_record, to_json
from surefoot.records.compared import Cause, PartedAt, Scripts
from surefoot.records.trace import Operation, Parting, Trace, Traced, parting
from surefoot.units import counted

SCRIPTS = (".py", ".ipynb")
"""How the names of scripts end. Other files hold traces."""
UPDATES = 3
"""How many updates are compared unless more are asked for."""


def against(
    script: str,
    other: str | None,
    args: Sequence[str] = (),
    *,
    updates: int = UPDATES,
    keep: Path | None = None,
    quiet: bool = False,
) -> Scripts:
    """Whether a script computes the same as another one, with the same arguments, in its first updates.

    `other` is a script, or a file that `keep` wrote before. Each script runs in a process of its own. Where they
    differ, both run once more to measure by how much. Without `other`, the script is only traced.
    """
    for each in filter(None, (script, other)):
        if not Path(each).is_file():
            raise RunError(f"no script {each}")
    before = None if other is None else _read(other, args, updates=updates, quiet=quiet)
    now = trace_script(script, args, updates=updates if before is None else before.updates, quiet=quiet)
    if not now.updates:
        raise RunError(f"{script} made no update, so there is nothing to compare")
    if keep is not None:
        keep.write_text(to_json(now, indent=None) + "\n", encoding="utf-8")
    if before is None:
        return Scripts("", script, now.updates)
    return _compared(before, now, args, is_record=not str(other).endswith(SCRIPTS))


def _read(other: str, args: Sequence[str], *, updates: int, quiet: bool) -> Traced:
    if other.endswith(SCRIPTS):
        found = trace_script(other, args, updates=updates, quiet=quiet)
    else:
        found = read_record(Traced, Path(other))
    if not found.updates:
        raise RunError(f"{other} made no update, so there is nothing to compare")
    return found


def _compared(before: Traced, now: Traced, args: Sequence[str], *, is_record: bool) -> Scripts:
    made = Scripts(before.script, now.script, min(before.updates, now.updates))
    for one, other in zip(before.traces, now.traces, strict=False):
        names = [name for name, each in one.parameters.items() if other.parameters.get(name) != each]
        if names and one.step > 1:
            said = f"the same inputs, parameters and gradients, and then {_named(names)}"
            return _ended(made, one.step - 1, "update", said, None)
        if one.step > made.updates:
            break
        found = parting(one, other)
        at = (
            None
            if found is None
            else _placed(found, one, other, () if is_record else (before.script, now.script), args)
        )
        if names:
            said = f"{_named(names)} before the first update: was the same seed set?"
            return _ended(made, one.step, "parameters", said, at)
        if one.inputs != other.inputs:
            return _ended(made, one.step, "batch", "the models were called with other values", at)
        if found is not None and at is not None:
            cause, said = _why(found, one, other)
            return _ended(made, one.step, cause, said, at)
    if before.updates != now.updates:
        return _ended(
            made, made.updates + 1, "update", f"one makes {before.updates} updates, the other {now.updates}", None
        )
    return made


def _named(names: Sequence[str]) -> str:
    """The first parameter that differs, and how many others do."""
    more = counted(len(names) - 1, "other")
    return f"`{names[0]}` differs" if len(names) == 1 else f"`{names[0]}` and {more} differ"


def _why(found: Parting, one: Trace, other: Trace) -> tuple[Cause, str]:
    here, there = _pair(found, one, other)
    if here.given != there.given and not (found.only_first or found.only_second):
        return "batch", f"`{here.name}` was given other values, which no operation before it made: data, or a constant"
    return "arithmetic", "inputs and parameters are the same"


def _pair(found: Parting, one: Trace, other: Trace) -> tuple[Operation, Operation]:
    assert found.first is not None
    assert found.second is not None
    return one.operations[found.first], other.operations[found.second]


def _placed(found: Parting, one: Trace, other: Trace, scripts: Sequence[str], args: Sequence[str]) -> PartedAt | None:
    """Where they part, with the largest difference if both can run again."""
    if found.first is None or found.second is None:
        return None
    here, there = _pair(found, one, other)
    apart = None
    if scripts:
        places = zip(scripts, (found.first, found.second), strict=True)
        apart = largest_difference(*(results_in(each, args, update=one.step, operation=at) for each, at in places))
    return PartedAt.of(
        here, there, apart, *(tuple(map(operation_text, each)) for each in (found.only_first, found.only_second))
    )


def _ended(made: Scripts, step: int, cause: Cause, said: str, at: PartedAt | None) -> Scripts:
    return Scripts(made.first, made.second, made.updates, step, cause, said, at)
