"""summed-micro-batches

## What it does
Reports several backward calls of one line per update whose mean losses are summed instead of averaged.

## Why it hurts
The gradient is too large by the number of micro-batches. Clipping, weight decay and SGD's step all change with the
split.

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
Different losses on purpose: on lines of their own, of the same targets, for other parts of the model, or one from
each of several loaders; a sequence in parts, each of which continues from the state of the one before; sums that are
divided by a count; a term whose weight in the loss is the number that the loss is divided by.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import Loss, LossFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

_ALIKE = 1e-4
"""Weights of one loss that differ by no more than this are the same."""
_ABOUT = 0.2
"""Micro-batches of the same data have counts that differ by no more than this."""
_NO_CHANCE = 12
"""This many targets are not the same twice by chance."""


def windows(loop_facts: LoopFacts, loss_facts: LossFacts) -> Iterator[list[Loss]]:
    """For every update, the losses of its micro-batches: of one function, one line of backward, one per backward."""
    for chosen in _micro_batches(loop_facts):
        yield from _alike(loss_facts.losses, chosen) or _alike(loss_facts.reductions, chosen)


def _among_terms(loop_facts: LoopFacts, loss_facts: LossFacts) -> Iterator[list[Loss]]:
    """For every update whose losses are undivided sums of several terms: a mean that counts in full."""
    for chosen in _micro_batches(loop_facts):
        lines = _by_line(loss_facts.losses, chosen)
        backwards = [loop_facts.backwards[n] for n in chosen]
        whole = all(sorted(one.backward for one in each) == chosen for each in lines)
        undivided = all(b.joint is not None and abs(b.joint / b.scale - 1) < _ALIKE for b in backwards)
        if len(lines) < 2 or not whole or not undivided or any(_is_one_batch(each, loop_facts) for each in lines):
            continue
        means = [each for each in lines if each[0].reduction == "mean"]
        yield from [each for each in means if _count_in_full(each, loop_facts)][:1]


def sums_beside(loop_facts: LoopFacts, loss_facts: LossFacts) -> Iterator[list[Loss]]:
    """For every update, each line that sums once in every micro-batch, among other terms."""
    for chosen in _micro_batches(loop_facts):
        lines = _by_line((each for each in loss_facts.reductions if each.function == "sum"), chosen)
        yield from (each for each in lines if sorted(one.backward for one in each) == chosen)


def _micro_batches(loop_facts: LoopFacts) -> Iterator[list[int]]:
    """For every update, the backwards of one line that reach the same parameters."""
    for update in {each.update for each in loop_facts.backwards if each.followed_by_update and not each.in_update}:
        numbers = [
            n
            for n, backward in enumerate(loop_facts.backwards)
            if backward.update == update and not backward.in_update and not backward.cleared
        ]
        if added := [n for n in numbers if not loop_facts.backwards[n].asked]:
            numbers = added  # next to these, calls of torch.autograd.grad are inner steps
        sites = [loop_facts.backwards[n].site for n in numbers]
        chosen = [n for n in numbers if loop_facts.backwards[n].site == max(set(sites), key=sites.count)]
        if len(chosen) >= 2 and len({loop_facts.backwards[n].reach for n in chosen}) == 1:
            yield chosen


def _by_line(losses: Iterable[Loss], backwards: list[int]) -> list[list[Loss]]:
    by_line: dict[tuple[str, int], list[Loss]] = {}
    for each in losses:
        if each.backward in backwards and each.weights and each.reduction != "none":
            by_line.setdefault((each.function, each.site), []).append(each)
    return list(by_line.values())


def _alike(losses: tuple[Loss, ...], backwards: list[int]) -> list[list[Loss]]:
    """Loss calls of one line, one in each of these backwards, all of one kind."""
    lines = _by_line(losses, backwards)
    whole = [each for each in lines if len(lines) == 1 and sorted(one.backward for one in each) == backwards]
    return [each for each in whole if each[0].function in ("mean", "sum") or len({one.shape[1:] for one in each}) == 1]


def own_weights(losses: list[Loss], loop_facts: LoopFacts) -> list[float]:
    """The weight of each micro-batch's mean, whether it is torch's or a divided sum."""
    each = zip(losses, _weights(losses, loop_facts), counts_of(losses, loop_facts), strict=True)
    return [weight * count if loss.reduction == "sum" else weight for loss, weight, count in each]


def _weights(losses: list[Loss], loop_facts: LoopFacts) -> list[float]:
    return [abs(loss.weights[0]) / loop_facts.backwards[loss.backward].scale for loss in losses]


def counts_of(losses: list[Loss], loop_facts: LoopFacts) -> list[float]:
    """How many targets each has. A hand-written mean divides by elements, by samples or by the count of a mask."""
    weights = _weights(losses, loop_facts)
    counts = [float(loss.valid) for loss in losses]
    if losses[0].function != "sum":
        return counts
    samples = [float(loss.shape[0]) if loss.shape else 1.0 for loss in losses]
    products = [weight * count for weight, count in zip(weights, samples, strict=True)]
    if any(all(abs(product - whole) < _ALIKE for product in products) for whole in (1, 1 / len(losses))):
        return samples
    for parts in (len(losses), 1):
        masked = [1 / (parts * w) if w else 0.5 for w in weights]
        if max(masked) > 1.02 * min(masked) and all(n > 1 and abs(n - round(n)) < 1e-3 for n in masked):
            return masked
    return counts


def _is_one_batch(window: list[Loss], loop_facts: LoopFacts) -> bool:
    """Are they terms of one batch: the same inputs or targets for each, or the sides of a game in turn?"""
    constants, targets = {loss.constant for loss in window}, {loss.target_print for loss in window}
    if len(constants) == len(window) and None not in constants:
        return True
    if len(targets) == 1 and targets != {0} and constants == {None} and window[0].valid >= _NO_CHANCE:
        return True
    given: dict[Any, list[int]] = {}
    for forward in loop_facts.forwards:
        if forward.update == window[0].update and forward.backpropagated and forward.batch:
            given.setdefault((forward.model, forward.shapes), []).append(forward.batch)
    return any(len(each) >= len(window) for each in given.values()) and all(len(set(e)) == 1 for e in given.values())


def _is_in_turn(window: list[Loss], loop_facts: LoopFacts) -> bool:
    """Does a model continue from its own output, or get samples first and then another model's output?"""
    sources: dict[str, set[str]] = {}
    for forward in loop_facts.forwards:
        if forward.update == window[0].update and forward.backpropagated:
            sources.setdefault(forward.model, set()).add(forward.fed_by)
    return any("itself" in each or len(each) > 1 for each in sources.values())


def _is_one_of_each(window: list[Loss], loop_facts: LoopFacts) -> bool:
    """Is there one batch from each of several loaders, for example one per task?"""
    return any(each.loaders == len(window) for each in loop_facts.updates if each.number == window[0].update + 1)


def _is_divided_later(window: list[Loss], loop_facts: LoopFacts) -> bool:
    """Does the loop divide the gradients instead of the losses?"""
    return any(each.rescaled for each in loop_facts.updates if each.number == window[0].update + 1)


def _count_in_full(window: list[Loss], loop_facts: LoopFacts) -> bool:
    return all(abs(weight - 1) < _near(window) for weight in own_weights(window, loop_facts))


def _near(window: list[Loss]) -> float:
    """How close to 1 a weight must be. A sum may be divided by the count of another micro-batch."""
    return _ABOUT if window[0].reduction == "sum" and window[0].function != "sum" else _ALIKE


def check(loop_facts: LoopFacts, loss_facts: LossFacts, gradient_facts: GradientFacts) -> Iterator[Finding]:
    # without a line it is surefoot's own step, which divides once by the count of all
    cleared = {discard.where for discard in gradient_facts.discards if discard.discarded >= 2}
    summed = [
        window
        for window in (*windows(loop_facts, loss_facts), *_among_terms(loop_facts, loss_facts))
        if _count_in_full(window, loop_facts)
        and not _is_divided_later(window, loop_facts)
        and not _is_one_batch(window, loop_facts)
        and not _is_one_of_each(window, loop_facts)
        and not _is_in_turn(window, loop_facts)
        and loop_facts.backwards[window[0].backward].where not in {"", *cleared}
    ]
    made = len({window[0].update for window in summed})
    if made >= 2:
        yield Finding(
            check="summed-micro-batches",
            severity="warning",
            seen=f"in {counted(made, 'update')}, {len(summed[0])} micro-batches add their mean losses with "
            "weight 1 each",
            where=loop_facts.backwards[summed[0][0].backward].where or "the loop",
            why=f"the gradient is {len(summed[0])} times that of the whole batch",
            remedy="divide each loss by the number of micro-batches, or by the count of all targets",
        )
