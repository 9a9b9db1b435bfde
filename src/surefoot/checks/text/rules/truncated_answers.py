"""truncated-answers

## What it does
Reports texts that are cut at a limit: at least a tenth of them have the longest length and no end token, or no token
left that bears loss. Only models whose weights came from a folder or repository are looked at.

## Why it hurts
The model learns answers that stop in the middle of a sentence, and learns the end from short answers alone. Rows whose
answer is cut off whole cost time and teach nothing.

## Buggy
```python
tokenizer(texts, truncation=True, max_length=256)  # many texts are longer
```

## Fixed
```python
tokenizer(texts, truncation=True, max_length=2048)  # and drop those that are still longer
```

## What looks like it and is fine
Windows of one length that are cut from a stream; a few long texts.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts, TrainedText
from surefoot.records.finding import Finding

EXPLAINS = ("end-token-ignored", "texts-without-end-token")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_FEWEST, _SHARE = 3, 0.1


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for text in text_facts.trained_texts:
        many = text.cut >= max(_FEWEST, _SHARE * text.rows)
        if text.end and many and _are_texts(text):
            yield Finding(
                check="truncated-answers",
                severity="warning",
                seen=f"{text.cut} of {text.rows} texts have the longest length of {text.longest:,} tokens and lack the "
                f"end token {text.end} or any token that bears loss",
                where=text.where or "the recipe's data",
                why="answers are cut: the model learns to stop in the middle, or the row teaches nothing",
                remedy="raise the maximum length (max_length, context), or drop longer texts",
            )


def _are_texts(text: TrainedText) -> bool:
    """Do shorter rows end on their own, or do rows of one length begin with a prompt? Windows of a stream do not."""
    return text.ended >= 1 if text.lengths > 1 else text.aligned
