"""shuffled-evaluation

## What it does
Mentions an evaluation loader that shuffles or drops its last batch.

## Why it hurts
Samples that are dropped are never measured, and a shuffled order makes two evaluations hard to compare.

## Buggy
```python
DataLoader(validation, shuffle=True, drop_last=True)
```

## Fixed
```python
DataLoader(validation)
```

## What looks like it and is fine
Random subsets, measured on purpose.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for loader in evidence.loaders:
        if loader.role == "evaluation" and (loader.shuffled or loader.drops_last):
            how = " and ".join(["shuffles"] * loader.shuffled + ["drops its last batch"] * loader.drops_last)
            yield Finding(
                check="shuffled-evaluation",
                severity="info",
                seen=f"the evaluation loader of {loader.kind} {how}",
                where=f"the loader of {loader.kind}",
                why="dropped samples are never measured, and the order differs from one evaluation to the next",
                remedy="evaluate in order, with drop_last=False",
            )
