"""scheduler-out-of-order

## What it does
Reports a scheduler that is stepped before the first update, is never stepped, or drives an optimizer that makes no
updates, or none since another one replaced it.

## Why it hurts
If it is stepped too early, the first value of the schedule is skipped. If it is bound to another optimizer or never
stepped, the rate stays where it started, which for a warm-up may be zero.

## Buggy
```python
scheduler.step()
optimizer.step()
```

## Fixed
```python
optimizer.step()
scheduler.step()
```

## What looks like it and is fine
A scheduler that is restored before a run resumes, or stepped forward to where it was; one that steps at the end of an
epoch that has not ended; one that is left alone by a loop that sets the rate itself; one that is rebuilt together
with its optimizer; one that steps after an update that a gradient scaler skipped.
"""

from collections.abc import Iterator, Sequence

from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.facts.updates import Schedule, UpdateFacts
from surefoot.records.finding import Finding


def check(update_facts: UpdateFacts, sample_facts: SampleFacts) -> Iterator[Finding]:
    second_pass = any(loader.role == "training" and loader.passes >= 2 for loader in sample_facts.loaders)
    for number, schedule in enumerate(update_facts.schedules):
        if _made_way(schedule, update_facts.schedules[number + 1 :]):
            continue
        if schedule.calls and not schedule.updates and schedule.others_updated >= 2:
            seen = f"its optimizer made no update; another one made {schedule.others_updated}"
        elif not schedule.calls and not schedule.updates and schedule.replaced and schedule.ended:
            seen = f"it was never stepped, nor was its optimizer; another one made {schedule.others_updated} updates"
        elif schedule.replaced and schedule.idle_calls >= 2:
            seen = f"{schedule.idle_calls} of its steps came while another optimizer updated its optimizer's parameters"
        elif schedule.before_first_update and schedule.updates >= 2 and schedule.calls >= 2:
            seen = "its first step came before the first update"
        elif not schedule.calls and schedule.updates >= 3 and (second_pass or schedule.ended):
            if _is_set_by_hand(schedule, update_facts):
                continue
            seen = f"it was never stepped in {schedule.updates} updates"
        elif not schedule.calls and not schedule.updates and schedule.others_updated >= 3 and schedule.ended:
            seen = f"neither it nor its optimizer made a step; another one made {schedule.others_updated}"
        else:
            continue
        yield Finding(
            check="scheduler-out-of-order",
            severity="warning",
            seen=f"{schedule.kind}: {seen}",
            where=schedule.where or schedule.kind,
            why="the learning rate does not follow the schedule",
            remedy="build it on the optimizer that you step, and call scheduler.step() after optimizer.step()",
        )


def _made_way(schedule: Schedule, later: Sequence[Schedule]) -> bool:
    """Were it and its optimizer never used and then built again, as when a run resumes from a file?"""
    unused = not schedule.calls and not schedule.updates
    return unused and any(each.calls and each.updates and each.optimizer != schedule.optimizer for each in later)


def _is_set_by_hand(schedule: Schedule, update_facts: UpdateFacts) -> bool:
    """Does the rate change although no scheduler of its optimizer is stepped?"""
    beside = (each for each in update_facts.schedules if each.optimizer == schedule.optimizer)
    return len(set(schedule.rates)) > 1 and not any(each.calls for each in beside)
