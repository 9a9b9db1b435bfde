"""generate: text from the trained language model of a run."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch

from surefoot.data.formats import is_corpus
from surefoot.data.tokenize_task import tokenizer_file
from surefoot.data.tokenizer import BYTES, need
from surefoot.errors import RunError
from surefoot.exports.decode import Decoder, Sampling
from surefoot.exports.trained import trained_model
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.codec import read_plain_file
from surefoot.records.generated import Generated
from surefoot.records.run import Run, read_run
from surefoot.training.trust import recipe_of
from surefoot.training.weights import verified_weights
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

    `tokenizer` is `bytes` or a `tokenizer.json`; the default is the one that the run's corpus was made with.
    `recipe` is the recipe of the run; a run of a built-in recipe needs none.
    """
    run, sampling = read_run(path), sampling or Sampling()
    if run.status != "finished":
        raise RunError(f"{path} is {run.status}, not finished: finish it with the same `surefoot train`")
    text = _text_of(run, tokenizer)
    world = World()
    with kept(), world, torch.no_grad():
        recipe = recipe_of(run, path, recipe, trust_run=trust_run)
        model = trained_model(recipe, world, verified_weights(run))
        made, began = list[str](), time.perf_counter()
        decoder = Decoder(
            model, text.encode(prompt), context=recipe.tokens_per_sample, pick=sampling.picker(), cached=cached
        )
        for token in islice(decoder, tokens):
            made.append(text.next(token))
            if tell is not None and made[-1]:
                tell(made[-1])
        seconds = time.perf_counter() - began
    return Generated(
        run=str(path),
        prompt=prompt,
        text="".join(made),
        tokens=len(made),
        seconds=seconds,
        cached=decoder.is_cached,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
    )


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


def _text_of(run: Run, tokenizer: str | None) -> _Bytes | _BytePairs:
    """Between text and tokens: as the user says, or as the run's corpus was made."""
    if tokenizer == BYTES:
        return _Bytes()
    if tokenizer is not None:
        file = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
        if not file.is_file():
            raise RunError(f"no tokenizer {tokenizer!r}; name `bytes` or a tokenizer.json")
        return _BytePairs(file)
    corpus = run.knobs.get("corpus")
    if not isinstance(corpus, str):
        raise RunError(f"{run.path} does not say how its text became tokens; name it: --tokenizer bytes|FILE")
    if is_corpus(corpus) and (kept_file := tokenizer_file(Path(corpus))).is_file():
        return _BytePairs(kept_file)
    return _Bytes()
