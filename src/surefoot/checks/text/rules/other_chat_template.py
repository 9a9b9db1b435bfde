"""other-chat-template

## What it does
Reports conversations that are written in another way than the model's own chat template writes them. The template is
read from the model's folder or its cached files. All texts share a mark between two parts that differ, and none has
what the template writes before an answer.

## Why it hurts
The model learned to answer after its own marks. With others it begins anew, and whoever uses the tuned model with its
template meets a model that was never tuned on it.

## Buggy
```python
text = f"### Human: {question}\n### Assistant: {answer}"
```

## Fixed
```python
text = tokenizer.apply_chat_template(messages, tokenize=False)
```

## What looks like it and is fine
Models without a chat template; plain text; a template with other marks for the loss, which writes the same text.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding

_ROWS = 8


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for text in text_facts.trained_texts:
        if text.own_mark and text.rows >= _ROWS:
            yield Finding(
                check="other-chat-template",
                severity="warning",
                seen=f"all texts have {text.shared!r} between parts that differ, and none has {text.own_mark!r}, which "
                "the model's own chat template writes before an answer",
                where=text.where or "the recipe's data",
                why="what the model knows about answering is tied to its own marks, and they are used at inference",
                remedy="write conversations with tokenizer.apply_chat_template and the template of the model's folder",
            )
