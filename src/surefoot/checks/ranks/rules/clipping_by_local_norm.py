"""clipping-by-local-norm

## What it does
Reports gradient clipping whose norm differs between ranks.

## Why it hurts
A norm over the local shard is too small, and every rank scales its gradients by a different factor.

## Buggy
```python
nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # before gradients are exchanged
```

## Fixed
```python
with model.no_sync(): ...
loss.backward()  # exchanges
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
```

## What looks like it and is fine
Pipeline stages, which hold different parameters; ranks that train separately and are averaged now and then.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is None or len(ranks.local_norms) < 2:
        return
    low, high = min(ranks.local_norms), max(ranks.local_norms)
    if high - low > 1e-3 * high:
        yield Finding(
            check="clipping-by-local-norm",
            severity="warning" if ranks.by_hand else "error",
            seen=f"clipping measured norms from {low:.4g} to {high:.4g} on {ranks.count} ranks",
            where="the gradient clipping",
            why="every rank scales its gradients by a different factor, none by that of the whole gradient",
            remedy="clip after gradients are exchanged; with FSDP, use the norm of DTensors or model.clip_grad_norm_",
        )
