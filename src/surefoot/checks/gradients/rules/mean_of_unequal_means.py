"""mean-of-unequal-means

## What it does
Reports micro-batches with different numbers of valid targets whose means get equal weight.

## Why it hurts
A token in a short micro-batch then weighs more than one in a long one. The update depends on how the batch was split;
with unequal lengths it can point in another direction altogether.

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
Micro-batches of equal size; a last batch that is slightly smaller.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import Loss, LossFacts
from surefoot.checks.facts.ranks import RankFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.gradients.rules.summed_micro_batches import counts_of, own_weights, sums_beside, windows
from surefoot.records.finding import Finding

_SLIGHT, _FAR = 0.1, 0.25
"""How far a target's weight may be off, as a share: in most updates, or in a single one."""
_FAR_FEWER = 8
"""A last batch that is this many times smaller does matter."""


def check(
    loop_facts: LoopFacts, loss_facts: LossFacts, sample_facts: SampleFacts, rank_facts: RankFacts
) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is not None and ranks.target_counts:
        yield _finding("ranks", ranks.target_counts, "")
        return
    cuts = [(losses, counts_of(losses, loop_facts)) for losses in windows(loop_facts, loss_facts)]
    cuts += [each for each in _beside(loop_facts, loss_facts) if each[0] not in [losses for losses, _ in cuts]]
    uneven = [
        each for each in cuts if _count_alike(each[0], loop_facts) and _misweighed(each[1]) > _least(*each, loop_facts)
    ]
    padded = [each for each in uneven if _is_ragged(*each)]
    far = [each for each in padded if _misweighed(each[1]) > _FAR]
    passes = max((loader.passes for loader in sample_facts.loaders if loader.role == "training"), default=len(cuts))
    mostly = padded if len(padded) >= max(2, len(cuts) / 2) else []  # masks drawn at random differ a little by chance
    often = uneven if len(uneven) >= 3 + passes and 2 * len(uneven) > len(cuts) else []  # a pass has one last batch
    for losses, counts in (far or mostly or often)[:1]:
        yield _finding("micro-batches", tuple(map(round, counts)), loop_facts.backwards[losses[0].backward].where)


def _beside(loop_facts: LoopFacts, loss_facts: LossFacts) -> Iterator[tuple[list[Loss], list[float]]]:
    """Sums among other terms that are divided by the count of a mask."""
    for losses in sums_beside(loop_facts, loss_facts):
        counts = counts_of(losses, loop_facts)
        if counts != [float(loss.valid) for loss in losses] and len(set(counts)) > 1:
            yield losses, counts


def _count_alike(losses: list[Loss], loop_facts: LoopFacts) -> bool:
    weights = own_weights(losses, loop_facts)
    return max(weights) - min(weights) < 1e-4 * max(map(abs, weights)) and all(w < 1 - 1e-4 for w in weights)


def _least(losses: list[Loss], counts: list[float], loop_facts: LoopFacts) -> float:
    """A recipe can return a sum and its count, and is seen on few samples, so any difference counts."""
    is_recipe = not loop_facts.backwards[losses[0].backward].where
    return 0.0 if is_recipe and _is_ragged(losses, counts) else _SLIGHT


def _misweighed(counts: list[float]) -> float:
    """How far the weight of a target is off, as a share: in the shortest or in the longest, whichever is more."""
    right = [count / sum(counts) for count in counts if count]
    return max((abs(1 / len(counts) - share) / share for share in right), default=0.0)


def _is_ragged(losses: list[Loss], counts: list[float]) -> bool:
    """Do they differ in more than the number of samples, which a last batch may do?"""
    masked = any(loss.valid < loss.targets for loss in losses) or counts[0] not in (losses[0].valid, losses[0].shape[0])
    return masked or len({loss.shape[2:] for loss in losses}) > 1 or max(counts) >= _FAR_FEWER * min(counts)


def _finding(what: str, counts: tuple[int, ...], where: str) -> Finding:
    return Finding(
        check="mean-of-unequal-means",
        severity="warning",
        seen=f"{what} with {', '.join(map(str, counts))} valid targets get equal weight, each as its own mean",
        where=where or "the loop",
        why="a target in a short one weighs more than one in a long one, so the update depends on the split",
        remedy='use reduction="sum", and divide once by the count of all targets',
    )
