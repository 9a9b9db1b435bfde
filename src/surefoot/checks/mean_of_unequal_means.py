"""mean-of-unequal-means

## What it does
Reports micro-batches with different numbers of valid targets whose means count alike.

## Why it hurts
A token in a short micro-batch then weighs more than one in a long one. The update depends on how the batch
was cut; with unequal lengths it can point elsewhere altogether.

## Buggy
```python
for x, y in micro_batches:
    (F.cross_entropy(model(x), y, ignore_index=pad) / len(micro_batches)).backward()
```

## Fixed
```python
total = sum((y != pad).sum() for _, y in micro_batches)
for x, y in micro_batches:
    (F.cross_entropy(model(x), y, ignore_index=pad, reduction="sum") / total).backward()
```

## What looks like it and is fine
Micro-batches of equal size; a last batch that is somewhat smaller.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.checks.summed_micro_batches import own_weight, windows
from surefoot.records.finding import Finding

_FAR_FEWER = 8
"""A last batch that is so many times smaller is no trifle."""


def check(evidence: Evidence) -> Iterator[Finding]:
    ranks = evidence.ranks
    if (
        ranks is not None
        and len(ranks.target_counts) > 1
        and max(ranks.target_counts) > 1.25 * min(ranks.target_counts)
    ):
        yield _finding("ranks", ranks.target_counts, "")
        return
    for losses in windows(evidence):
        weights = [own_weight(loss, evidence.backwards[loss.backward]) for loss in losses]
        counts = [loss.valid for loss in losses]
        ragged = any(loss.valid < loss.targets for loss in losses) or len({loss.shape[2:] for loss in losses}) > 1
        ragged = ragged or max(counts) >= _FAR_FEWER * min(counts)
        even = max(weights) - min(weights) < 1e-5 * max(map(abs, weights)) and all(w < 1 for w in weights)
        if not even or not ragged or not sum(counts):
            continue
        share = 1 / len(losses)
        if max(abs(share - n / sum(counts)) / (n / sum(counts)) for n in counts if n) > 0.25:
            yield _finding("micro-batches", tuple(counts), evidence.backwards[losses[0].backward].where)
            return


def _finding(what: str, counts: tuple[int, ...], where: str) -> Finding:
    return Finding(
        check="mean-of-unequal-means",
        severity="error" if what == "micro-batches" else "warning",
        seen=f"{what} with {', '.join(map(str, counts))} valid targets count alike, each with its own mean",
        where=where or "the loop",
        why="a target in a short one weighs more than one in a long one, so the update depends on the cut",
        remedy="add up sums, and divide once by the count of all targets",
    )
