"""attention-across-documents

## What it does
Reports packed documents that see each other although positions restart at each, or the documents are numbered.

## Why it hurts
Positions say that a new document begins, but attention still reads the one before. The model is trained on a mixture
that it never meets again.

## Buggy
```python
model(tokens, position_ids=restarting)  # with a plain causal mask
```

## Fixed
```python
model(tokens, position_ids=restarting, attention_mask=block_diagonal)
```

## What looks like it and is fine
Packing without document masks, with positions that run on.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for probe in model_facts.probes:
        if probe.documents > LEAKS:
            yield Finding(
                check="attention-across-documents",
                severity="warning",
                seen=f"logits of a document change by {probe.documents:.2g} standard deviations when the one before "
                "changes",
                where=probe.model,
                why="positions restart, but attention still reads the document before",
                remedy="mask attention by document, or use a variable-length kernel with cu_seqlens",
            )
