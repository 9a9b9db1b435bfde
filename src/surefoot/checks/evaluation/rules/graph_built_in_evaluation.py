"""graph-built-in-evaluation

## What it does
Reports forwards in evaluation mode that build a graph which is never back-propagated, and those of a model without
such a mode that come many at a time, now and then between two updates.

## Why it hurts
Without `no_grad`, evaluation stores every activation for a backward that does not come. If its loss is
summed up as a tensor, all graphs of a pass stay in memory at once.

## Buggy
```python
model.eval()
total = sum(criterion(model(x), y) for x, y in validation)
```

## Fixed
```python
model.eval()
with torch.no_grad():
    total = sum(criterion(model(x), y) for x, y in validation)
```

## What looks like it and is fine
Saliency maps and adversarial examples, whose inputs ask for a gradient; copies of the weights that are adapted to a
task by `torch.autograd.grad`; training in evaluation mode, which another check names.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import Forward, LoopFacts
from surefoot.records.finding import Finding

_MANY = 4
"""So many forwards between two updates are an evaluation."""
_RARE = 1 / 3
"""What comes after more than this share of the updates belongs to the step, as a rollout does."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    trained = {forward.model for forward in loop_facts.forwards if forward.trained and forward.training}
    unused = [each for each in loop_facts.forwards if not each.training and _is_unused(each)]
    unused = [each for each in unused if each.model in trained] or list(_runs(loop_facts))
    if len(unused) >= 2:
        kept = sum(each.graph_kept for each in unused)
        yield Finding(
            check="graph-built-in-evaluation",
            severity="warning" if kept >= 2 else "info",
            seen=f"{len(unused)} forwards of an evaluation built a graph that no backward used"
            + (f"; {kept} of these graphs still existed two batches or two updates later" if kept else ""),
            where=unused[0].model,
            why="activations are stored for a backward that does not come",
            remedy="evaluate under torch.no_grad() or torch.inference_mode()",
        )


def _runs(loop_facts: LoopFacts) -> Iterator[Forward]:
    """Forwards that come many at a time after a few of the updates, of models that no mode changes."""
    runs: dict[tuple[str, int], list[Forward]] = {}
    for each in loop_facts.forwards:
        if not each.mode_dependent:
            runs.setdefault((each.model, each.update), []).append(each)
    unused = {place: [each for each in run if _is_unused(each)] for place, run in runs.items()}
    many = {place: run for place, run in unused.items() if len(run) >= _MANY and place[1]}
    for (model, _), run in many.items():
        if sum(other == model for other, _ in many) <= _RARE * len(loop_facts.updates):
            yield from run


def _is_unused(forward: Forward) -> bool:
    return forward.builds_graph and not forward.backpropagated and not (forward.input_graded or forward.derived)
