"""state-lost-on-reload

## What it does
Reports state that is lost on reload. It covers tensors of a model that training changes but its state_dict does not
hold; plain numbers, lists and random generators that its forwards change and depend on; tables that were drawn at
random when it was built; data sets whose samples depend on what was read before; and files with all parameters but no
buffers.

## Why it hurts
After a restart they have their initial values again: running statistics, counters and averages are lost, and the
resumed model is a different one.

## Buggy
```python
self.running = torch.zeros(width)  # updated in forward
```

## Fixed
```python
self.register_buffer("running", torch.zeros(width))
```

## What looks like it and is fine
Caches that are recomputed, tables that never change, counters and records that nothing depends on, a state that every
pass resets, and numbers that the loop sets.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import Layout, ModelFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(model_facts: ModelFacts, sample_facts: SampleFacts, saved_facts: SavedStateFacts) -> Iterator[Finding]:
    for file in saved_facts.files:
        if file.kind == "without-buffers":
            yield Finding(
                check="state-lost-on-reload",
                severity="warning",
                seen=f"a file holds all parameters but no buffers, although training changed them: {file.detail}",
                where=file.where or "torch.save",
                why="a resumed run starts with their initial values",
                remedy="save model.state_dict(), which holds both",
            )
            return
    idle = {(probe.model, name) for probe in model_facts.probes for name in probe.idle_state}
    tensors = [(_needed(layout, idle), "tensor", "changed in training") for layout in model_facts.layouts]
    numbers = [(probe.counters, "number", "changed in training") for probe in model_facts.probes]
    tables = [
        (probe.drawn_tables, "tensor", "drawn at random when the model was built") for probe in model_facts.probes
    ]
    named = {name for lost, *_ in (*tensors, *numbers, *tables) for name in lost}
    others = tuple(name for name in saved_facts.lost_attributes if name not in named)
    yield from _in_data(sample_facts, saved_facts)
    for lost, what, how in (*tensors, *numbers, *tables, (others, "attribute", "changed in training")):
        if lost:
            yield Finding(
                check="state-lost-on-reload",
                severity="warning",
                seen=f"{counted(len(lost), what)} {how}, in no state_dict: {', '.join(lost[:3])}",
                where=lost[0],
                why="a resumed run starts with other values",
                remedy="register them as persistent buffers; for anything but tensors, define get_extra_state and "
                "set_extra_state",
            )


def _in_data(sample_facts: SampleFacts, saved_facts: SavedStateFacts) -> Iterator[Finding]:
    """Reading that changes a data set in place is another bug with a check of its own."""
    unstable, read = saved_facts.unstable_samples
    if unstable and not any(samples.changed_by_reading for samples in sample_facts.samples):
        yield Finding(
            check="state-lost-on-reload",
            severity="warning",
            seen=f"{unstable} of {read} samples changed when they were read again with the same random numbers",
            where="the data set",
            why="a sample depends on what was read before, so a resumed run gets other samples",
            remedy="keep no counter and no generator in the data set: draw from the global generators in __getitem__, "
            "which are seeded for every sample",
        )


def _needed(layout: Layout, idle: set[tuple[str, str]]) -> tuple[str, ...]:
    """The lost tensors, except those that no output depends on."""
    return tuple(name for name in layout.lost_state if (layout.model, name) not in idle)
