"""data-position-lost-on-resume

## What it does
Reports a run that resumes in the middle of a pass over its data and starts that pass over. Also reports a run that
resumes from a file with the state of a random generator that it draws from, and does not restore that state.

## Why it hurts
Samples that the pass had already shown are shown again, and others are never shown in it. Without its state, a
generator starts again at its seed: earlier orders and masks come back, and the run differs from one without the stop.

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
Passes that are drawn with replacement, or endless streams; files that are saved between passes. States that nothing
draws from any more, for example of a generator that split the data; one of a list of states, which is that of the
rank; files that are loaded to look at their weights, or to go back to the best of them.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding

EXPLAINS = ("same-order-every-epoch",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_GLOBAL = ("torch", "random", "numpy.random")


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    for lost in saved_facts.lost_states:
        whose = f"the generator of {lost.whose}" if lost.whose in _GLOBAL else f"the generator {lost.whose!r}"
        yield Finding(
            check="data-position-lost-on-resume",
            severity="warning",
            seen=f"the file holds the state of {whose} as {lost.key!r}; nothing reads it, but training draws from it",
            where=lost.where,
            why="random numbers from before the stop are drawn again, and the run becomes a different one",
            remedy=f"restore {lost.key!r} before training resumes",
        )
    for each in saved_facts.resumptions:
        if each.in_epoch and not each.skipped:
            yield Finding(
                check="data-position-lost-on-resume",
                severity="info",
                seen=f"{each.counter!r} is {each.loaded}, {each.in_epoch} updates into a pass; the pass starts over",
                where=each.where,
                why="samples of the unfinished pass are seen twice, and others not at all",
                remedy="skip the batches that are done, or save the state of the sampler and of the generators",
            )
            return
