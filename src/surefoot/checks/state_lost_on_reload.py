"""state-lost-on-reload

## What it does
Reports tensors of a model that training changes and that its state_dict does not hold, plain numbers that its
forwards change and depend on, tables that were drawn at random when it was built, and files with all its parameters
and none of its buffers.

## Why it hurts
After a restart they are what they were in the beginning: running statistics, counters and averages are
gone, and the resumed model is another one.

## Buggy
```python
self.running = torch.zeros(width)  # updated in forward
```

## Fixed
```python
self.register_buffer("running", torch.zeros(width))
```

## What looks like it and is fine
Caches that are computed anew, tables that never change, counters and records that nothing depends on, a state that
every pass begins anew, and numbers that the loop sets.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence, Layout
from surefoot.records.finding import Finding
from surefoot.records.units import counted


def check(evidence: Evidence) -> Iterator[Finding]:
    for file in evidence.files:
        if file.kind == "without-buffers":
            yield Finding(
                check="state-lost-on-reload",
                severity="warning",
                seen=f"a file holds all parameters, and no buffers, though training changed them: {file.detail}",
                where=file.where or "torch.save",
                why="a resumed run begins with their initial values",
                remedy="save model.state_dict(), which holds both",
            )
            return
    idle = {(probe.model, name) for probe in evidence.probes for name in probe.idle_state}
    tensors = [(_needed(layout, idle), "tensor", "changed in training") for layout in evidence.layouts]
    numbers = [(probe.counters, "number", "changed in training") for probe in evidence.probes]
    tables = [(probe.drawn_tables, "tensor", "drawn at random when the model was built") for probe in evidence.probes]
    for lost, what, how in (*tensors, *numbers, *tables):
        if lost:
            yield Finding(
                check="state-lost-on-reload",
                severity="warning",
                seen=f"{counted(len(lost), what)} {how}, in no state_dict: {', '.join(lost[:3])}",
                where=lost[0],
                why="a resumed run begins with other values",
                remedy="register them as buffers, persistent ones",
            )


def _needed(layout: Layout, idle: set[tuple[str, str]]) -> tuple[str, ...]:
    """The tensors that were lost, but for those that no output depends on."""
    return tuple(name for name in layout.lost_state if (layout.model, name) not in idle)
