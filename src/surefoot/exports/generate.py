"""generate: text from the trained language model of a run, an export or a Hugging Face folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from surefoot.errors import RunError
from surefoot.exports.decode import Decoder, Sampling
from surefoot.exports.prompts import Words, named_words, words_of_folder, words_of_run
from surefoot.exports.source import open_source
from surefoot.exports.trained import trained_model
from surefoot.exports.transformers_text import is_its_folder, is_its_model, make_tokens, open_folder
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.generated import Generated
from surefoot.world.world import World


def generate(
    path: str,
    prompt: str,
    recipe: str | Recipe | None = None,
    *,
    tokens: int = 200,
    sampling: Sampling | None = None,
    tokenizer: str | None = None,
    cached: bool = True,
    raw: bool = False,
    trust_run: bool = False,
    echo: Callable[[str], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Generated:
    """Returns the text after a prompt. `tell` receives each piece of text as soon as it is made.

    `path` is a finished run, an export, or a Hugging Face folder. Models of transformers use its own `generate`.

    If the model learned conversations, the prompt is a user's message in their chat template, and the text is the
    answer. With `raw` it is a text to continue, as with any other model; `echo` receives such a prompt before the
    first piece.

    `tokenizer` is `bytes` or a `tokenizer.json`; the default is the one that the run's corpus was made with.
    `recipe` is the recipe of the run; a run of a built-in recipe needs none.
    """
    sampling = sampling or Sampling()
    told = partial(told_text, path, prompt, sampling, echo, tell)
    if is_its_folder(Path(path)):
        model, its_tokenizer = open_folder(Path(path))
        text = named_words(tokenizer) if tokenizer else words_of_folder(its_tokenizer, raw=raw)
        maker = _by_transformers(model, text, prompt, tokens, sampling, cached)
        return told(text, maker, is_cached=lambda: cached)
    source = open_source(path)
    world = World()
    with kept(), world, torch.no_grad():
        made_by = source.recipe(recipe, (), trust_run=trust_run)
        if not source.is_weights:
            raise RunError(f"{source.file} is a program of one call; name model.safetensors beside it")
        text = named_words(tokenizer) if tokenizer else words_of_run(path, made_by, raw=raw)
        model = trained_model(made_by, world, source.file)
        if is_its_model(model):
            maker = _by_transformers(model, text, prompt, tokens, sampling, cached)
            return told(text, maker, is_cached=lambda: cached)
        decoder = Decoder(
            model, text.encode(prompt), context=made_by.tokens_per_sample, pick=sampling.picker(), cached=cached
        )

        return told(text, partial(decoder.put, tokens, text.ends), is_cached=lambda: decoder.is_cached)


class Maker(Protocol):
    """Makes tokens, and calls a function with each."""

    def __call__(self, *, put: Callable[[int], None]) -> None: ...


def _by_transformers(model: Any, text: Words, prompt: str, tokens: int, sampling: Sampling, cached: bool) -> Maker:
    how: dict[str, Any] = {"tokens": tokens, "sampling": sampling, "cached": cached, "ends": text.ends}
    return partial(make_tokens, model, text.encode(prompt), **how)


def told_text(
    path: str,
    prompt: str,
    sampling: Sampling,
    echo: Callable[[str], None] | None,
    tell: Callable[[str], None] | None,
    text: Words,
    make: Maker,
    *,
    is_cached: Callable[[], bool],
) -> Generated:
    """Makes the text, and tells each piece as soon as it is whole."""
    made = list[str]()

    def put(token: int) -> None:
        if not made and echo is not None and not text.is_chat:
            echo(prompt)
        made.append(text.next(token))
        if tell is not None and made[-1]:
            tell(made[-1])

    with kept(), torch.no_grad():
        began = time.perf_counter()
        make(put=put)
        seconds = time.perf_counter() - began
    return Generated(
        run=str(path),
        prompt=prompt,
        text="".join(made),
        tokens=len(made),
        seconds=seconds,
        cached=is_cached(),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
        chat=text.is_chat,
    )
