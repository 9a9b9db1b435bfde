"""chat: a conversation with a trained model, by the chat template that it learned, turn by turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from surefoot.errors import RunError
from surefoot.exports.decode import Decoder, Sampling
from surefoot.exports.generate import told_text
from surefoot.exports.prompts import Pieces, tokenizer_of_run
from surefoot.exports.source import open_source
from surefoot.exports.trained import trained_model
from surefoot.exports.transformers_text import is_its_folder, is_its_model, make_tokens, open_folder
from surefoot.finetuning.chat import has_template, rendered_talk
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.generated import Generated
from surefoot.world.world import World


class Chat:
    """A model, and what was said so far.

    `path` is a finished run, an export, or a Hugging Face folder whose tokenizer has a chat template. `recipe` is the
    recipe of the run; a run of a built-in recipe needs none. `tokens` is the most that an answer has.
    """

    def __init__(
        self,
        path: str,
        recipe: str | Recipe | None = None,
        *,
        system: str = "",
        tokens: int = 500,
        sampling: Sampling | None = None,
        trust_run: bool = False,
    ) -> None:
        self.path, self.tokens, self.sampling = path, tokens, sampling or Sampling()
        self._model, self._tokenizer, self.context = _opened(path, recipe, trust_run=trust_run)
        self._first = [{"role": "system", "content": system}] if system else []
        self.turns: list[dict[str, str]] = []
        """Messages of user and assistant, without those that were forgotten."""
        self._asked = 0
        if system:
            rendered_talk([*self._first, {"role": "user", "content": "?"}], self._tokenizer)  # a template may refuse it

    def forget(self) -> None:
        """Begins a new conversation."""
        self.turns = []

    def answer(self, message: str, tell: Callable[[str], None] | None = None) -> Generated:
        """The model's answer. `tell` receives each piece as soon as it is made.

        An answer that is interrupted by Ctrl-C ends there, and stays in the conversation as far as it came. When the
        context is full, the oldest question and its answer are forgotten.
        """
        prompt, self.turns = self._prompt([*self.turns, {"role": "user", "content": message}])
        text = Pieces(self._tokenizer, is_chat=True)
        sampling = replace(self.sampling, seed=self.sampling.seed + self._asked)
        self._asked += 1

        def make(*, put: Callable[[int], None]) -> None:
            with suppress(KeyboardInterrupt):
                self._make(prompt, text.ends, sampling, put)

        said = told_text(self.path, message, sampling, None, tell, text, make, is_cached=lambda: True)
        self.turns.append({"role": "assistant", "content": said.text})
        return said

    def _prompt(self, turns: list[dict[str, str]]) -> tuple[list[int], list[dict[str, str]]]:
        """The tokens of the conversation, and its turns: as many as leave room for an answer."""
        while True:
            whole = rendered_talk([*self._first, *turns], self._tokenizer)
            tokens = list(self._tokenizer(whole, add_special_tokens=False)["input_ids"])
            room = self.context - len(tokens)
            if room >= min(self.tokens, self.context // 4) or (len(turns) == 1 and room > 0):
                return tokens, turns
            if len(turns) == 1:
                raise RunError(
                    f"the message has {len(tokens):,} tokens with its template; the context is {self.context:,}"
                )
            turns = turns[2:]

    def _make(self, prompt: list[int], ends: frozenset[int], sampling: Sampling, put: Callable[[int], None]) -> None:
        most = min(self.tokens, self.context - len(prompt))
        if is_its_model(self._model):
            make_tokens(self._model, prompt, tokens=most, sampling=sampling, cached=True, ends=ends, put=put)
            return
        Decoder(self._model, prompt, context=self.context, pick=sampling.picker()).put(most, ends, put)


def _opened(path: str, recipe: str | Recipe | None, *, trust_run: bool) -> tuple[Any, Any, int]:
    """Model, tokenizer and the most tokens of a conversation."""
    if is_its_folder(Path(path)):
        model, tokenizer = open_folder(Path(path))
        most = 0
    else:
        source, world = open_source(path), World()
        if not source.is_weights:
            raise RunError(f"{source.file} is a program of one call; name model.safetensors beside it")
        with kept(), world, torch.no_grad():
            made_by = source.recipe(recipe, (), trust_run=trust_run)
            tokenizer = tokenizer_of_run(made_by)
            model = None if tokenizer is None else trained_model(made_by, world, source.file)
        most = made_by.tokens_per_sample
    if tokenizer is None or not has_template(tokenizer):
        raise RunError(
            f"{path} has no chat template, so it cannot chat; `surefoot generate {path} PROMPT` goes on from a text"
        )
    config = getattr(model, "config", None)
    return model, tokenizer, getattr(config, "max_position_embeddings", None) or most or 2048
