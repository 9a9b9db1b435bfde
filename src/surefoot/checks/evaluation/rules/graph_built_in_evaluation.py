"""graph-built-in-evaluation

## What it does
Reports forward calls in evaluation mode that build a graph which no backward uses. For a model without mode-dependent
layers, it reports many such calls in a row, if they come only now and then between two updates.

## Why it hurts
Without `no_grad`, evaluation stores every activation for a backward that never comes. If you sum its loss as a
tensor, all graphs of a pass stay in memory at once.

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
Saliency maps and adversarial examples, whose inputs require a gradient; copies of the weights that are adapted to a
task with `torch.autograd.grad`; training in evaluation mode, which has a check of its own.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import Forward, LoopFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

_MANY = 4
"""At least this many forwards between two updates are an evaluation."""
_RARE = 1 / 3
"""Forwards after more than this share of the updates are part of the step, like a rollout."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    trained = {forward.model for forward in loop_facts.forwards if forward.trained and forward.training}
    unused = [each for each in loop_facts.forwards if not each.training and _is_unused(each)]
    unused = [each for each in unused if each.model in trained] or list(_runs(loop_facts))
    if len(unused) >= 2:
        kept = sum(each.graph_kept for each in unused)
        yield Finding(
            check="graph-built-in-evaluation",
            severity="warning" if kept >= 2 else "info",
            seen=f"{counted(len(unused), 'forward call')} in evaluation built a graph that no backward used"
            + (f"; {kept} of these graphs still existed two batches or two updates later" if kept else ""),
            where=unused[0].model,
            why="activations are stored for a backward that never comes",
            remedy="evaluate under torch.no_grad() or torch.inference_mode()",
        )


def _runs(loop_facts: LoopFacts) -> Iterator[Forward]:
    """Unused forwards, many in a row after only a few of the updates, of models without mode-dependent layers."""
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
