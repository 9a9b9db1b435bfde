"""What ranks do in the tests of fine-tuning: they train, stop and resume, and count what a step takes."""

from __future__ import annotations

from typing import Any

import bitsandbytes  # noqa: F401  these are imported once, before ranks are forked
import peft  # noqa: F401
import torchao  # noqa: F401
import transformers.models.llama.modeling_llama  # noqa: F401

import surefoot.ways.train  # noqa: F401
from surefoot import Recipe, load_recipe
from tests.planned_ranks import taken_by
from tests.ways.ranks import run_of

SMALL = ["context=16", "micro_batch_size=2", "global_batch_tokens=128", "rank=2", "max_steps=4", "save_every=2"]
"""Four micro-batches: two for each of two ranks."""


def tuned(words: list[str]) -> Recipe:
    """A small fine-tune; words that are given come before the usual ones."""
    given = {word.partition("=")[0] for word in words}
    return load_recipe("finetune", [*words, *(word for word in SMALL if word.partition("=")[0] not in given)])


def trained(path: str, words: list[str], asked: tuple[int, int] | None = None) -> str:
    """A fine-tune, to its end; or rank `asked[0]` gets a SIGTERM in the step after `asked[1]`."""
    return run_of(tuned(words), path, asked)


def taken(words: list[str]) -> dict[str, Any]:
    """The peaks and the traffic of a few steps."""
    return taken_by(tuned(words))
