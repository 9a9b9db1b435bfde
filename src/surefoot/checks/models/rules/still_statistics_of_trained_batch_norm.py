"""still-statistics-of-trained-batch-norm

## What it does
Reports BatchNorm layers whose weights are trained while they, and the module around them, always run in evaluation
mode inside a model in training mode.

## Why it hurts
The running mean and variance stay those of the data that the backbone was trained on, while the layers before them
change. Often a line that belonged to a frozen backbone, `backbone.eval()`, is left over.

## Buggy
```python
model.train()
model.backbone.eval()  # its parameters are trained
```

## Fixed
```python
model.train()
```

## What looks like it and is fine
BatchNorm layers alone in evaluation mode, which keeps statistics on purpose; a backbone whose parameters are frozen.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        if layout.still_norms:
            names = layout.still_norms
            yield Finding(
                check="still-statistics-of-trained-batch-norm",
                severity="warning",
                seen=f"{counted(len(names), 'BatchNorm layer')} with trained parameters always ran in evaluation mode, "
                f"with the module around them: {', '.join(names[:3])}",
                where=names[0],
                why="their running statistics stay those of other data while the layers before them change",
                remedy="leave that part in training mode, or freeze it: requires_grad_(False)",
            )
            return
