"""end-token-ignored

## What it does
Reports an end token that is in the inputs but never a valid target. The end token is known from the model's config.
It is also known if it doubles as the padding: batches are padded to their longest text, and even that one is followed
by one more. For a model whose weights came from a folder or repository, all first batches are read: the end of turns
that stands in texts and never bears loss is reported, too.

## Why it hurts
If the padding token is the end token, ignoring padding also ignores the end. The model never learns to stop.

## Buggy
```python
labels[labels == tokenizer.pad_token_id] = -100  # and pad_token is eos_token
```

## Fixed
```python
labels[attention_mask == 0] = -100
```

## What looks like it and is fine
Streams without end tokens; texts that end with a token of their own; padding to a fixed length.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding

_ROWS = 4


def check(text_facts: TextFacts) -> Iterator[Finding]:
    found = False
    for sequence in text_facts.sequences:
        if sequence.ends_ignored is not None:
            found = True
            yield Finding(
                check="end-token-ignored",
                severity="warning",
                seen=f"the end token {sequence.ends_ignored} is in the inputs but never a valid target",
                where=sequence.where or "the recipe's loss",
                why="the model never learns to stop",
                remedy="ignore targets by the attention mask, not by the value of the padding token",
            )
    for text in text_facts.trained_texts if not found else ():
        if text.end_read >= _ROWS and text.learned >= _ROWS and not text.end_learned:
            yield Finding(
                check="end-token-ignored",
                severity="warning",
                seen=f"the end token {text.end} is in {text.end_read} of {text.rows} texts and never bears loss",
                where=text.where or "the recipe's data",
                why="the model never learns to stop",
                remedy="let the end of each answer bear loss: keep its label, or put it inside {% generation %} in the "
                "chat template",
            )
