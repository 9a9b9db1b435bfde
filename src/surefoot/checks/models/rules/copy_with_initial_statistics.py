"""copy-with-initial-statistics

## What it does
Reports an average of weights that is evaluated while its BatchNorm layers still have their initial statistics, a mean
of zero and a variance of one.

## Why it hurts
Loops over `parameters()` do not see buffers. The average has good weights and normalises with statistics that no data
has touched. Its accuracy is that of an untrained network.

## Buggy
```python
for slow, fast in zip(ema.parameters(), model.parameters()):
    slow.lerp_(fast, 0.001)
evaluate(ema)
```

## Fixed
```python
for slow, fast in zip(ema.parameters(), model.parameters()):
    slow.lerp_(fast, 0.001)
for slow, fast in zip(ema.buffers(), model.buffers()):
    slow.copy_(fast)
evaluate(ema)
```

## What looks like it and is fine
An average whose statistics are collected before its evaluation, with `torch.optim.swa_utils.update_bn` or by running it
in training mode.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for each in model_facts.shadows:
        if each.stale_statistics:
            yield Finding(
                check="copy-with-initial-statistics",
                severity="warning",
                seen=f"{each.name} was evaluated with the initial statistics of {each.stale_statistics}; those of "
                f"{each.source} have moved",
                where=each.name,
                why="its weights are averaged, but BatchNorm still expects inputs of mean 0 and variance 1",
                remedy="copy the buffers too, or collect statistics with update_bn() before evaluation",
            )
