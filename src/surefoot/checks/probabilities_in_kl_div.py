"""probabilities-in-kl-div

## What it does
Reports a `kl_div` whose first argument does not hold log-probabilities.

## Why it hurts
`kl_div(input, target)` takes the logarithms of the model's distribution first. Given probabilities, or with
the arguments swapped, it computes a number that is no divergence and whose gradient leads elsewhere.

## Buggy
```python
loss = F.kl_div(student.softmax(-1), teacher.softmax(-1), reduction="batchmean")
```

## Fixed
```python
loss = F.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")
```

## What looks like it and is fine
`log_target=True` with logarithms on both sides.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    wrong = [loss for loss in evidence.losses if loss.function == "kl_div" and not loss.log_probabilities]
    if wrong:
        yield Finding(
            check="probabilities-in-kl-div",
            severity="error",
            seen=f"{len(wrong)} calls of kl_div were given a first argument that holds no log-probabilities",
            where=wrong[0].where or "the recipe's loss",
            why="the result is no divergence, and its gradient leads elsewhere",
            remedy="give it log_softmax of the model's logits first, the target's probabilities second",
        )
