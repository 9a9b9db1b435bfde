"""Other text that a language model is scored on: a corpus of the same tokenizer, or text files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from surefoot.data.formats import is_corpus, open_corpus
from surefoot.data.text import byte_windows
from surefoot.data.windows import TokenWindows
from surefoot.errors import DataError
from surefoot.recipe.recipe import Recipe
from surefoot.records.manifest import HELD_OUT, Manifest


def scored_on(recipe: Recipe, folder: str) -> Recipe:
    """The recipe with the text of a folder as its evaluation data: the held-out part of a corpus, or all of it."""
    learned = recipe.knobs.get("corpus")
    if not isinstance(learned, str):
        raise DataError(f"{recipe.name} has no knob `corpus`, so it does not say how text becomes tokens")
    evaluation: Callable[[], Any] = partial(byte_windows, folder, recipe.tokens_per_sample)
    if not is_corpus(learned):
        if is_corpus(folder):
            raise DataError(f"{folder} holds tokens, and the model learned bytes; name a folder of text files")
        return replace(recipe, evaluation=evaluation, bytes_per_token=1.0)
    if not is_corpus(folder):
        raise DataError(
            f"{folder} holds no tokens, and the model learned those of {learned}; tokenise it with the same tokenizer: "
            f"surefoot data tokenize --tokenizer {learned}/tokenizer.json"
        )
    corpus = open_corpus(folder)
    _refuse_other_tokens(folder, corpus.manifest, learned, open_corpus(learned).manifest)
    held_out = corpus.only(HELD_OUT)
    chosen = held_out if held_out.manifest.shards else corpus
    return replace(
        recipe,
        evaluation=partial(TokenWindows, chosen, recipe.tokens_per_sample),
        bytes_per_token=chosen.manifest.bytes_per_token,
    )


def _refuse_other_tokens(folder: str, here: Manifest, learned: str, there: Manifest) -> None:
    for what in ("vocabulary", "tokenizer"):
        if getattr(here, what) != getattr(there, what):
            raise DataError(
                f"{folder} has another {what} than {learned}, which the model learned from: {getattr(here, what)} and "
                f"{getattr(there, what)}; tokenise the text with the same tokenizer"
            )
