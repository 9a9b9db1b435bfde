"""activation-before-cross-entropy

## What it does
Reports logits that pass through ReLU, sigmoid or tanh right before `cross_entropy` or
`binary_cross_entropy_with_logits`.

## Why it hurts
Cross-entropy needs logits of any size and sign. Logits that are cut at zero or squeezed into an interval cannot
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

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

_SQUEEZING = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "LeakyRelu": "leaky_relu", "Gelu": "gelu", "Elu": "elu",
    "Threshold": "relu", "Hardtanh": "relu6", "Silu": "silu", "Softplus": "softplus", "Mish": "mish", "Abs": "abs",
    "Hardswish": "hardswish", "Hardsigmoid": "hardsigmoid", "PreluKernel": "prelu", "Relu6": "relu6",
}  # fmt: skip


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    squeezed = [
        loss
        for loss in loss_facts.losses
        if (loss.logits_from in _SQUEEZING or loss.cut)
        and (
            (loss.function in ("cross_entropy", "nll_loss") and not loss.probabilities)
            or (loss.function == "binary_cross_entropy_with_logits" and loss.above != "Sigmoid")
        )
    ]
    by_hand = [
        aim
        for aim in loss_facts.aims
        if (aim.above in _SQUEEZING or aim.cut)
        and ((aim.kind == "classes" and aim.values == "numbers") or (aim.kind == "binary" and aim.values != "shares"))
    ]
    if squeezed:
        by = _SQUEEZING.get(squeezed[0].logits_from, "cut at zero")
        seen, where = (
            f"{counted(len(squeezed), 'call')} of {squeezed[0].function} received the output of a {by}",
            squeezed[0].where,
        )
    elif len(by_hand) >= 3:
        by = _SQUEEZING.get(by_hand[0].above, "cut at zero")
        seen, where = f"{len(by_hand)} gradients show logits that are the output of a {by}", by_hand[0].model
    else:
        return
    yield Finding(
        check="activation-before-cross-entropy",
        severity="warning",
        seen=seen,
        where=where or "the recipe's loss",
        why="logits that are cut or squeezed cannot express a confident answer",
        remedy="end the model with the linear layer",
    )
