"""texts-without-end-token

## What it does
Reports padded texts of different lengths, none of which contains an end token. The end token is known from the
model's config or its tokenizer. Only models whose weights came from a folder or repository are looked at.

## Why it hurts
The model never sees where an answer ends. After fine-tuning it goes on writing until the limit.

## Buggy
```python
batch = tokenizer([prompt + answer for prompt, answer in rows], padding=True)
```

## Fixed
```python
batch = tokenizer([prompt + answer + tokenizer.eos_token for prompt, answer in rows], padding=True)
```

## What looks like it and is fine
Windows of one length that are cut from a stream.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding

_ROWS, _LENGTHS = 8, 3


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for text in text_facts.trained_texts:
        if text.end and not text.end_read and min(text.rows, text.learned) >= _ROWS and text.lengths >= _LENGTHS:
            yield Finding(
                check="texts-without-end-token",
                severity="warning",
                seen=f"none of {text.rows} texts of {text.lengths} different lengths contains the end token {text.end}",
                where=text.where or "the recipe's data",
                why="the model never learns to stop",
                remedy="append tokenizer.eos_token to each answer, and let it bear loss",
            )
