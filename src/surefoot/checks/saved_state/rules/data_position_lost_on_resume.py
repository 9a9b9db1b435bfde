"""data-position-lost-on-resume

## What it does
Reports a run that goes on in the middle of a pass over its data and begins that pass anew. Reports also a run that
goes on from a file with the state of a random generator that it draws from, and does not put that state back.

## Why it hurts
What the pass had already shown is shown again, and something else is never shown in it. Without its state, a generator
begins again at its seed: orders and masks that were there before come once more, and the run is another one than
without the stop.

## Buggy
```python
state = torch.load("step_150.pt")  # a pass has 100 updates
for batch in loader:
    ...

torch.save({"model": model.state_dict(), "rng": torch.get_rng_state()}, path)
state = torch.load(path)
model.load_state_dict(state["model"])  # and nothing else
```

## Fixed
```python
for batch in itertools.islice(loader, state["step"] % len(loader), None):
    ...

torch.set_rng_state(state["rng"])
```

## What looks like it and is fine
Passes that are drawn with replacement, or streams without an end; files that are saved between passes. States that
nothing draws from any more, as those of a generator that has split the data; one of a list of states, which is that of
the rank; files that are loaded to look at their weights, or to go back to the best of them.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding

EXPLAINS = ("same-order-every-epoch",)
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""

_GLOBAL = ("torch", "random", "numpy.random")


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    for lost in saved_facts.lost_states:
        whose = f"the generator of {lost.whose}" if lost.whose in _GLOBAL else f"the generator {lost.whose!r}"
        yield Finding(
            check="data-position-lost-on-resume",
            severity="warning",
            seen=f"the file holds the state of {whose} as {lost.key!r}; nothing reads it, and training draws from it",
            where=lost.where,
            why="random numbers that were drawn before the stop are drawn once more, and the run becomes another one",
            remedy=f"put {lost.key!r} back before training goes on",
        )
    for each in saved_facts.resumptions:
        if each.in_epoch and not each.skipped:
            yield Finding(
                check="data-position-lost-on-resume",
                severity="info",
                seen=f"{each.counter!r} is {each.loaded}, which is {each.in_epoch} updates into a pass; it begins anew",
                where=each.where,
                why="samples of the unfinished pass are seen twice, and others not at all",
                remedy="pass over the batches that are done, or keep the state of the sampler and of the generators",
            )
            return
