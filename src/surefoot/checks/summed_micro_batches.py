"""summed-micro-batches

## What it does
Reports several backwards of one line per update whose mean losses are added up and not averaged.

## Why it hurts
The gradient is as many times too large as there are micro-batches. Clipping, weight decay and SGD's step
all change with the cut.

## Buggy
```python
for x, y in micro_batches:
    F.cross_entropy(model(x), y).backward()
optimizer.step()
```

## Fixed
```python
for x, y in micro_batches:
    (F.cross_entropy(model(x), y) / len(micro_batches)).backward()
optimizer.step()
```

## What looks like it and is fine
Different losses on purpose, at lines of their own; sums that are divided by a count.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Backward, Evidence, Loss
from surefoot.records.finding import Finding


def windows(evidence: Evidence) -> Iterator[list[Loss]]:
    """For every update, the losses of its micro-batches: of one function, one line of backward, one per backward."""
    for update in {each.update for each in evidence.backwards if each.followed_by_update and not each.in_update}:
        numbers = [
            n for n, backward in enumerate(evidence.backwards) if backward.update == update and not backward.in_update
        ]
        sites = [evidence.backwards[n].site for n in numbers]
        chosen = [n for n in numbers if evidence.backwards[n].site == max(set(sites), key=sites.count)]
        reduced = [each for each in evidence.losses if each.weights and each.reduction != "none"]
        losses = [each for each in reduced if each.backward in chosen]
        alike = len({(each.function, each.shape[1:], each.site) for each in losses}) == 1
        if len(chosen) >= 2 and alike and sorted(each.backward for each in losses) == chosen:
            yield losses


def own_weight(loss: Loss, backward: Backward) -> float:
    """With which weight the mean over its own micro-batch counts, be it torch's or a sum that is divided."""
    return loss.weights[0] / backward.scale * (loss.valid if loss.reduction == "sum" else 1)


def _may_be_divided_later(window: list[Loss]) -> bool:
    """Sums of as many targets each, divided by one number, may have their gradients divided by the rest."""
    return window[0].reduction == "sum" and len({loss.valid for loss in window}) == 1


def check(evidence: Evidence) -> Iterator[Finding]:
    # without a line it is a way's own step, which divides once, by the count of all
    cleared = {discard.where for discard in evidence.discards if discard.discarded >= 2}
    summed = [
        window
        for window in windows(evidence)
        if all(abs(own_weight(loss, evidence.backwards[loss.backward]) - 1) < 1e-5 for loss in window)
        and not _may_be_divided_later(window)
        and evidence.backwards[window[0].backward].where not in {"", *cleared}
    ]
    if len(summed) >= 2:
        yield Finding(
            check="summed-micro-batches",
            severity="error",
            seen=f"in {len(summed)} updates, {len(summed[0])} micro-batches with mean losses count with weight 1 each",
            where=evidence.backwards[summed[0][0].backward].where or "the loop",
            why=f"the gradient is {len(summed[0])} times that of the whole batch",
            remedy="divide each micro-batch's loss by their number, or by the count of all targets",
        )
