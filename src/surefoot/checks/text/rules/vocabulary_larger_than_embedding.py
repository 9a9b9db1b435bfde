"""vocabulary-larger-than-embedding

## What it does
Reports a tokenizer with more tokens than the embedding of its model has rows.

## Why it hurts
Tokens were added, and the model was not resized. Their ids have no row: the lookup fails, or code that clamps or wraps
ids gives them the row of another token.

## Buggy
```python
tokenizer.add_tokens(["<tool>"])
```

## Fixed
```python
tokenizer.add_tokens(["<tool>"])
model.resize_token_embeddings(len(tokenizer))
```

## What looks like it and is fine
An embedding with more rows than there are tokens, as many models have.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for text in text_facts.trained_texts:
        if text.tokenizer_size > text.embedding_rows:
            yield Finding(
                check="vocabulary-larger-than-embedding",
                severity="warning",
                seen=f"the tokenizer has {text.tokenizer_size:,} tokens and the embedding of {text.model} "
                f"{text.embedding_rows:,} rows",
                where=text.where or "the recipe's data",
                why="the last tokens have no row of their own: the lookup fails, or they share another token's row",
                remedy="call model.resize_token_embeddings(len(tokenizer)) after adding tokens, and train the new rows",
            )
