"""loss-on-prompt

## What it does
Says that every token of every text bears loss, although all texts share a mark, such as `[/INST]` or `### Response:`,
between two parts that differ from text to text. Only models whose weights came from a folder or repository are looked
at.

## Why it hurts
The model is also trained to write questions. That is a choice. With long prompts and short answers, little of the
loss is about answers.

## Buggy
```python
labels = input_ids.clone()
```

## Fixed
```python
labels = input_ids.masked_fill(is_prompt, -100)
```

## What looks like it and is fine
Plain text, which has no such mark.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding

_ROWS = 8


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for text in text_facts.trained_texts:
        if text.whole and text.shared and text.rows >= _ROWS:
            yield Finding(
                check="loss-on-prompt",
                severity="info",
                seen=f"every token of {text.rows} texts bears loss; all have {text.shared!r} between parts that differ",
                where=text.where or "the recipe's data",
                why="the model is also trained to write prompts",
                remedy="if only answers should bear loss, set the labels of prompts to -100 (in TRL: "
                "completion_only_loss or assistant_only_loss)",
            )
