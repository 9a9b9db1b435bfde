"""wrong-custom-backward

## What it does
Reports a custom `autograd.Function` whose backward does not agree with small differences of its forward.

## Why it hurts
Autograd trusts whatever backward returns. The loss may still fall, only worse, and no error is ever raised.

## Buggy
```python
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * torch.sigmoid(x)
```

## Fixed
```python
    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * s * (1 + x * (1 - s))
```

## What looks like it and is fine
Functions that return their input, for example to reverse or scale gradients; rounding and signs, whose backward
stands in for a derivative that they do not have.
"""

from collections.abc import Iterator

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.records.finding import Finding

_FAR = 0.02


def check(gradient_facts: GradientFacts) -> Iterator[Finding]:
    for each in gradient_facts.derivatives:
        if abs(each.share - 1) > _FAR:
            yield Finding(
                check="wrong-custom-backward",
                severity="warning",
                seen=f"along a random direction the backward of {each.function} predicts {each.share:.3g} times the "
                "change of its forward",
                where=each.function,
                why="gradients through it do not lead down the loss",
                remedy="test it with torch.autograd.gradcheck in float64; if it is intended, allow this check",
            )
