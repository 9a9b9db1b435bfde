"""generate: text from the trained language model of a run, an export or a Hugging Face folder."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch

from surefoot.data.formats import is_corpus
from surefoot.data.tokenize_task import tokenizer_file
from surefoot.data.tokenizer import BYTES, need
from surefoot.errors import RunError
from surefoot.exports.decode import Decoder, Sampling
from surefoot.exports.source import open_source
from surefoot.exports.trained import trained_model
from surefoot.exports.transformers_text import is_its_folder, is_its_model, make_tokens, open_folder
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.codec import read_plain_file
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
    trust_run: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Generated:
    """Text after a prompt. `tell` receives each piece of text as soon as it is made.

    `path` is a finished run, an export, or a Hugging Face folder. Models of transformers use its own `generate`.

    `tokenizer` is `bytes` or a `tokenizer.json`; the default is the one that the run's corpus was made with.
    `recipe` is the recipe of the run; a run of a built-in recipe needs none.
    """
    sampling, made = sampling or Sampling(), list[str]()
    if is_its_folder(Path(path)):
        model, its_tokenizer = open_folder(Path(path))
        text: Words = _Pieces(its_tokenizer)
        maker = _by_transformers(model, text.encode(prompt), tokens, sampling, cached)
        return _told(path, prompt, text, maker, sampling, made, tell, lambda: cached)
    source = open_source(path)
    world = World()
    with kept(), world, torch.no_grad():
        made_by = source.recipe(recipe, (), trust_run=trust_run)
        if not source.is_weights:
            raise RunError(f"{source.file} is a program of one call; name model.safetensors beside it")
        text = _text_of(path, made_by, tokenizer)
        model = trained_model(made_by, world, source.file)
        if is_its_model(model):
            maker = _by_transformers(model, text.encode(prompt), tokens, sampling, cached)
            return _told(path, prompt, text, maker, sampling, made, tell, lambda: cached)
        decoder = Decoder(
            model, text.encode(prompt), context=made_by.tokens_per_sample, pick=sampling.picker(), cached=cached
        )

        def ours(put: Callable[[int], None]) -> None:
            for token in islice(decoder, tokens):
                put(token)

        return _told(path, prompt, text, ours, sampling, made, tell, lambda: decoder.is_cached)


Maker = Callable[[Callable[[int], None]], None]
"""Makes tokens, and calls a function with each."""


def _by_transformers(model: Any, prompt: list[int], tokens: int, sampling: Sampling, cached: bool) -> Maker:
    return lambda put: make_tokens(model, prompt, tokens=tokens, sampling=sampling, cached=cached, put=put)


def _told(
    path: str,
    prompt: str,
    text: Words,
    make: Maker,
    sampling: Sampling,
    made: list[str],
    tell: Callable[[str], None] | None,
    is_cached: Callable[[], bool],
) -> Generated:
    """Makes the text, and tells each piece as soon as it is whole."""

    def put(token: int) -> None:
        made.append(text.next(token))
        if tell is not None and made[-1]:
            tell(made[-1])

    with kept(), torch.no_grad():
        began = time.perf_counter()
        make(put)
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
    )


class Words(Protocol):
    """Between text and tokens."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""

    def next(self, token: int) -> str:
        """The text that a token completes."""


class _Pieces:
    """A tokenizer of transformers. A letter that is not whole yet waits for the next token."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._made, self._said = tokenizer, list[int](), ""

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])

    def next(self, token: int) -> str:
        self._made.append(token)
        whole = self._tokenizer.decode(self._made, skip_special_tokens=True)
        if whole.endswith("\ufffd") or not whole.startswith(self._said):
            return ""
        new, self._said = whole[len(self._said) :], whole
        return new


class _Bytes:
    """Every byte is a token. A token that is no byte, and a cut letter, are shown as a replacement character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def next(self, token: int) -> str:
        """The text that a token completes."""
        return self._decoder.decode(bytes([token])) if token < 256 else self._decoder.decode(b"\xff")


class _BytePairs:
    """The tokenizer in a `tokenizer.json`. A token may complete a letter that earlier ones began."""

    def __init__(self, file: Path) -> None:
        library = need("tokenizers")
        self._tokenizer = library.Tokenizer.from_str(read_plain_file(file).decode())
        self._stream = library.decoders.DecodeStream(skip_special_tokens=True)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def next(self, token: int) -> str:
        return self._stream.step(self._tokenizer, token) or ""


def _text_of(path: str, recipe: Recipe, tokenizer: str | None) -> Words:
    """Between text and tokens: as the user says, or as the recipe's corpus was made."""
    if tokenizer == BYTES:
        return _Bytes()
    if tokenizer is not None:
        file = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
        if not file.is_file():
            raise RunError(f"no tokenizer {tokenizer!r}; name `bytes` or a tokenizer.json")
        return _BytePairs(file)
    corpus = recipe.knobs.get("corpus")
    if not isinstance(corpus, str):
        raise RunError(f"{path} does not say how its text became tokens; name it: --tokenizer bytes|FILE")
    if is_corpus(corpus) and (kept_file := tokenizer_file(Path(corpus))).is_file():
        return _BytePairs(kept_file)
    return _Bytes()
