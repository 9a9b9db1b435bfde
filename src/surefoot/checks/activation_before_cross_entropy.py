"""activation-before-cross-entropy

## What it does
Reports logits that pass through ReLU, sigmoid or tanh right before `cross_entropy`.

## Why it hurts
Cross-entropy needs logits of any size and sign. Cut at zero or squeezed into an interval, they cannot
express a confident answer, and where ReLU cuts there is no gradient at all.

## Buggy
```python
def forward(self, x):
    return F.relu(self.head(x))
```

## Fixed
```python
def forward(self, x):
    return self.head(x)
```

## What looks like it and is fine
Soft-capping, `30 * tanh(logits / 30)`: the last operation is the multiplication.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding

_SQUEEZING = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "LeakyRelu": "leaky_relu", "Gelu": "gelu", "Elu": "elu",
    "Threshold": "relu", "Hardtanh": "relu6",
}  # fmt: skip


def check(evidence: Evidence) -> Iterator[Finding]:
    squeezed = [
        loss
        for loss in evidence.losses
        if loss.function == "cross_entropy" and loss.above in _SQUEEZING and not loss.probabilities
    ]
    if squeezed:
        yield Finding(
            check="activation-before-cross-entropy",
            severity="warning",
            seen=f"{len(squeezed)} calls of cross_entropy were given the result of a {_SQUEEZING[squeezed[0].above]}",
            where=squeezed[0].where or "the recipe's loss",
            why="logits that are cut or squeezed cannot express a confident answer",
            remedy="end the model with the linear layer",
        )
