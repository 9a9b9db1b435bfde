"""dropout-in-evaluation

## What it does
Reports dropout that stays on in evaluation mode.

## Why it hurts
`F.dropout(x, p)` drops unless you pass `training=False`, and `scaled_dot_product_attention` always drops with the
`dropout_p` it gets. Evaluation gives different numbers every time, and worse ones.

## Buggy
```python
x = F.dropout(x, 0.1)
```

## Fixed
```python
x = F.dropout(x, 0.1, training=self.training)
```

## What looks like it and is fine
Monte Carlo dropout, recognised by repeated evaluation of one input; random sampling that is not dropout.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for probe in model_facts.probes:
        if probe.random_in_evaluation and not probe.repeats_evaluation:
            yield Finding(
                check="dropout-in-evaluation",
                severity="error",
                seen=f"{probe.random_in_evaluation} drops elements although the model is in evaluation mode",
                where=probe.model,
                why="evaluation gives different numbers every time, and worse ones",
                remedy="pass training=self.training, or dropout_p=self.p if self.training else 0.0",
            )
