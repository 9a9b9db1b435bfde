"""wrapped-token-ids

## What it does
Reports token arrays whose dtype cannot hold the model's vocabulary. Their ids reach the largest number of the dtype,
and no larger id ever enters the model. If the array is gone, a call in the source that makes one of such a dtype
gives a warning.

## Why it hurts
An id that does not fit wraps around silently: 300 becomes 44 in a byte. Different words share one id, and the
embedding rows beyond the largest id are never trained.

## Buggy
```python
np.array(tokens).astype(np.uint8)  # a vocabulary of 1,000
```

## Fixed
```python
np.array(tokens).astype(np.uint16)
```

## What looks like it and is fine
Bytes of text or images, with a few more tokens for starts and ends; a vocabulary that is larger than the texts need.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for each in text_facts.narrow_tokens[:1]:
        kept = "were created" if each.in_source else "are stored"
        yield Finding(
            check="wrapped-token-ids",
            severity="warning" if each.in_source else "error",
            seen=f"tokens {kept} as {each.dtype}, which holds {each.holds:,} numbers, for an embedding of "
            f"{each.rows:,} rows; no token above {each.holds - 1:,} was seen",
            where="the tokens",
            why="ids that do not fit wrap around, so different words share one id",
            remedy="store tokens in a dtype that holds the vocabulary",
        )
