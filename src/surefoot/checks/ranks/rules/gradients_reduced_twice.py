"""gradients-reduced-twice

## What it does
Reports gradients that are exchanged by hand after DistributedDataParallel has done so, and updates that use the mean
over ranks multiplied or divided by their number.

## Why it hurts
The wrapper has already averaged them. A sum by hand makes them too large by the number of ranks; a second division
makes them too small.

## Buggy
```python
loss.backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
```

## Fixed
```python
loss.backward()
```

## What looks like it and is fine
Exchange by hand without the wrapper; sums over ranks of losses that were divided by the count of all; metrics and
losses that are reduced for printing; gradients of several micro-batches that are divided by their number, even if
there are as many ranks; a division that undoes a factor of the loss, or follows a sum in the wrapper.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.ranks import RankFacts, Ranks
from surefoot.checks.gradients.rules.summed_micro_batches import own_weights
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts, loss_facts: LossFacts, rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is None:
        return
    if ranks.reduced_again:
        seen = f"gradients of a model under DistributedDataParallel were reduced by hand: {ranks.reduced_again}"
        why = f"the wrapper has averaged them already: a sum makes them {ranks.count} times too large"
    elif factor := _factor(loop_facts, loss_facts, ranks):
        seen = f"updates used {factor:.3g} times the mean of the gradients of {ranks.count} ranks"
        why = "the size of an update depends on the number of ranks"
    else:
        return
    yield Finding(
        check="gradients-reduced-twice",
        severity="error"
        if ranks.wrapped and (ranks.reduced_again or _is_weighed(loop_facts, loss_facts, ranks))
        else "warning",
        seen=seen,
        where=ranks.reduced_again or ranks.divided_again or "the exchange of gradients",
        why=why,
        remedy="leave the exchange to the wrapper" if ranks.wrapped else "divide once by the number of ranks",
    )


def _factor(loop_facts: LoopFacts, loss_facts: LossFacts, ranks: Ranks) -> float | None:
    """The factor of the gradients' size, if it is the number of ranks or its inverse in every update."""
    weight, ratios = ranks.mean_weight or _weight(loop_facts, loss_facts, ranks), ranks.ratios_to_mean
    if len(ratios) < 2 or not (_is_weighed(loop_facts, loss_facts, ranks) or _is_divided_again(ranks)):
        return None
    chosen = ranks.mean_weight or ranks.scaled_by_count or any(abs(ratio - 1) > 0.01 for ratio in ratios)
    for factor in (float(ranks.count), 1 / ranks.count):
        if chosen and all(abs(ratio * (weight or 1.0) / factor - 1) < 0.01 for ratio in ratios):
            return factor
    return None


def _is_weighed(loop_facts: LoopFacts, loss_facts: LossFacts, ranks: Ranks) -> bool:
    """Is the weight of an update's losses known, or is there only one, whose mean the wrapper takes?"""
    return bool(ranks.mean_weight or _weight(loop_facts, loss_facts, ranks)) or (
        ranks.wrapped and ranks.micro_batches < 1.5
    )


def _is_divided_again(ranks: Ranks) -> bool:
    """Is there a second division by the number of ranks? It may undo a factor of the loss, but not of a total."""
    return bool(ranks.divided_again) and (not ranks.scaled_by_count or ranks.counts_all)


def _weight(loop_facts: LoopFacts, loss_facts: LossFacts, ranks: Ranks) -> float | None:
    """The weight of the mean loss over all micro-batches of an update; None if it is not known."""
    known = [loss for loss in loss_facts.losses if loss.weights and loss.backward >= 0 and loss.reduction != "none"]
    weights = own_weights(known, loop_facts) if known else []
    if not weights or len({loss.backward for loss in known}) < len(known) or max(weights) > 1.01 * min(weights):
        return None
    return weights[0] * ranks.micro_batches
