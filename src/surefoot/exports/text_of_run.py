"""How the text of a recipe became tokens: by the tokenizer of its corpus, or byte by byte."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from surefoot.data.formats import is_corpus, open_corpus
from surefoot.data.tokenize_task import tokenizer_file
from surefoot.recipe.recipe import Recipe


@dataclass(frozen=True)
class Text:
    """`tokenizer` is the file of a byte-pair encoding, if there is one."""

    kind: Literal["tokens", "bytes", "unknown"]
    tokenizer: Path | None = None
    end_of_document: int | None = None


def text_of(recipe: Recipe) -> Text:
    """What the recipe's knob `corpus` says."""
    corpus = recipe.knobs.get("corpus")
    return text_of_corpus(corpus) if isinstance(corpus, str) else Text("unknown")


def text_of_corpus(corpus: str) -> Text:
    """What a corpus says. A folder of text files is read byte by byte."""
    if not is_corpus(corpus):
        return Text("bytes")
    file, end = tokenizer_file(Path(corpus)), open_corpus(corpus).manifest.end_of_document
    if file.is_file():
        return Text("tokens", file, end if end >= 0 else None)
    return Text(
        "bytes" if open_corpus(corpus).manifest.tokenizer == "bytes" else "unknown", None, end if end >= 0 else None
    )
