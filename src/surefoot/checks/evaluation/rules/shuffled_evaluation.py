"""shuffled-evaluation

## What it does
Mentions an evaluation loader that shuffles or drops its last batch. Also mentions hand-written evaluation that reads
its samples in a different order every time, or skips those that do not fill a batch.

## Why it hurts
Dropped samples are never measured, and a shuffled order makes two evaluations hard to compare.

## Buggy
```python
DataLoader(validation, shuffle=True, drop_last=True)
```

## Fixed
```python
DataLoader(validation)
```

## What looks like it and is fine
Random subsets that are measured on purpose.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts, evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    told = [
        (f"the evaluation loader of {each.kind}", f"the loader of {each.kind}", each.out_of_order, each.drops_last)
        for each in sample_facts.loaders
        if each.role == "evaluation"
    ]
    told += [("the evaluation", each.model, each.reordered, each.left_out > 0) for each in evaluation_facts.passes]
    for what, where, shuffles, drops in told:
        if shuffles or drops:
            how = " and ".join(["shuffles"] * shuffles + ["drops its last batch"] * drops)
            yield Finding(
                check="shuffled-evaluation",
                severity="info",
                seen=f"{what} {how}",
                where=where,
                why="dropped samples are never measured, and the order differs from one evaluation to the next",
                remedy="evaluate in order, with drop_last=False",
            )
            return
