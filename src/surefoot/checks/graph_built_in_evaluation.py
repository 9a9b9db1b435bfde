"""graph-built-in-evaluation

## What it does
Reports forwards in evaluation mode that build a graph which is never back-propagated.

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
Saliency maps and adversarial examples, whose inputs ask for a gradient; training in evaluation mode, which
another check names.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    trained = {forward.model for forward in evidence.forwards if forward.trained and forward.training}
    unused = [
        each
        for each in evidence.forwards
        if not each.training and each.builds_graph and not each.backpropagated and not each.input_graded
    ]
    unused = [each for each in unused if each.model in trained]
    if len(unused) >= 2:
        kept = sum(each.graph_kept for each in unused)
        yield Finding(
            check="graph-built-in-evaluation",
            severity="warning" if kept >= 2 else "info",
            seen=f"{len(unused)} forwards in evaluation mode built a graph that no backward used"
            + (f"; {kept} of these graphs still existed two batches or two updates later" if kept else ""),
            where=unused[0].model,
            why="activations are stored for a backward that does not come",
            remedy="evaluate under torch.no_grad() or torch.inference_mode()",
        )
