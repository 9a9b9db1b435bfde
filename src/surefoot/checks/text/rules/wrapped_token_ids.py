"""wrapped-token-ids

## What it does
Reports arrays of tokens whose dtype cannot hold the vocabulary of the model, whose numbers reach the largest that it
holds, and of which no larger one ever enters the model. Where the array is gone, a call in the source that makes one of
such a dtype will do, as a warning.

## Why it hurts
A number that does not fit is cut off without a word: 300 becomes 44 in a byte. Words share their numbers with others,
and the rows of the embedding behind the largest are never trained.

## Buggy
```python
np.array(tokens).astype(np.uint8)  # a vocabulary of 1,000
```

## Fixed
```python
np.array(tokens).astype(np.uint16)
```

## What looks like it and is fine
Bytes of text or of pictures, with a few tokens more for starts and ends; a vocabulary that is larger than the texts
need.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for each in text_facts.narrow_tokens[:1]:
        kept = "were made" if each.in_source else "are kept"
        yield Finding(
            check="wrapped-token-ids",
            severity="warning" if each.in_source else "error",
            seen=f"tokens {kept} as {each.dtype}, which holds {each.holds:,} numbers, for an embedding of "
            f"{each.rows:,}; none above {each.holds - 1:,} was seen",
            where="the tokens",
            why="numbers that do not fit are cut off, and words share those of others",
            remedy="keep tokens in a dtype that holds the vocabulary",
        )
