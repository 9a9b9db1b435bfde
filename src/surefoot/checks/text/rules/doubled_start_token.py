"""doubled-start-token

## What it does
Reports texts that all begin with two start tokens. The start token is known from the model's config or its tokenizer.

## Why it hurts
The chat template writes a start token and the tokenizer adds another one. The model was never trained on two, and at
inference it will be given one. Answers get worse, and nothing fails.

## Buggy
```python
text = tokenizer.apply_chat_template(messages, tokenize=False)
batch = tokenizer(text)  # adds a start token of its own
```

## Fixed
```python
text = tokenizer.apply_chat_template(messages, tokenize=False)
batch = tokenizer(text, add_special_tokens=False)
```

## What looks like it and is fine
A start token that is also the padding or the end; single texts that begin with two.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding

_FEWEST = 4


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for text in text_facts.trained_texts:
        if text.starts >= _FEWEST and text.doubled_starts == text.starts:
            yield Finding(
                check="doubled-start-token",
                severity="warning",
                seen=f"all {text.starts} texts begin with two start tokens {text.start}",
                where=text.where or "the recipe's data",
                why="the chat template writes one and the tokenizer another; the model knows texts with one",
                remedy="tokenize what the chat template returns with add_special_tokens=False",
            )
