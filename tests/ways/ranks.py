"""What ranks do in the tests of training: they go on with a run, and are asked to stop."""

from __future__ import annotations

import os
import signal

import surefoot
from surefoot import load_recipe
from surefoot.errors import NonFinite
from tests.techniques.ranks import of_ragged

SMALL = ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=512"]


def trained(path: str, words: list[str], asked: tuple[int, int] | None = None) -> str:
    """A small gpt, to its end; or rank `asked[0]` gets a SIGTERM in the step after `asked[1]`, and all end with it."""

    def tell(_, row) -> None:
        if asked == (int(os.environ["RANK"]), row.step):
            os.kill(os.getpid(), signal.SIGTERM)

    recipe = load_recipe("gpt", [*SMALL, "max_steps=11", "save_every=50", *words])
    return surefoot.train(recipe, path=path, tell=tell).status


def broken(path: str) -> str:
    """A run whose fourth sample, the second one of rank 1, makes the loss NaN: what all ranks say of it."""
    try:
        surefoot.train(of_ragged(3, max_steps=3), path=path)
    except NonFinite as error:
        return str(error)
    return ""
