"""What ranks do in the tests of training: they go on with a run, and are asked to stop."""

from __future__ import annotations

import os
import signal

import numpy as np
import torch
from torch.utils.data import Dataset

import surefoot
from surefoot import Recipe, load_recipe
from surefoot.checkpoint.state import restore
from surefoot.debug.runs import audit as way
from surefoot.errors import NonFinite
from surefoot.training import replay
from surefoot.trees import local_part
from tests.techniques.ranks import of_ragged

SMALL = ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=512"]


def trained(path: str, words: list[str], asked: tuple[int, int] | None = None) -> str:
    """A small gpt, to its end; or rank `asked[0]` gets a SIGTERM in the step after `asked[1]`, and all end with it."""
    return run_of(load_recipe("gpt", [*SMALL, "max_steps=11", "save_every=4", *words]), path, asked)


def run_of(recipe: Recipe, path: str, asked: tuple[int, int] | None) -> str:
    """How a run of these ranks ends. `asked` as in `trained`."""

    def tell(_, row) -> None:
        if asked == (int(os.environ["RANK"]), row.step):
            os.kill(os.getpid(), signal.SIGTERM)

    return surefoot.train(recipe, path=path, tell=tell).status


class Drawn(Dataset):
    """Samples that draw from numpy's generator when they are made."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.as_tensor(np.random.normal(number % 2, 1.0, 4), dtype=torch.float32), number % 2


def drawn(path: str, settings: dict[str, int], stops_after: int | None = None) -> str:
    """A classifier of samples that draw, on replicas, cut and read as the settings say; to its end or to a stop."""

    def tell(_, row) -> None:
        if row.step == stops_after:
            os.kill(os.getpid(), signal.SIGTERM)

    recipe = Recipe(
        model=lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)),
        data=Drawn,
        loss=lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        dp_replicate=2,
        global_batch_tokens=16,
        max_steps=6,
        **settings,
    )
    return surefoot.train(recipe, path=path, accept_change=stops_after is None, tell=tell).status


def audited(path: str, words: list[str], flip: bool) -> tuple[str, ...]:
    """What an audit finds; with `flip`, a bit of rank 1's part of a weight has flipped on the way."""

    def restored(step, checkpoint):
        state = restore(step, checkpoint)
        if flip and os.environ["RANK"] == "1":
            local_part(step.model.blocks[0].mlp[0].weight.detach()).view(torch.int32)[0, 0] ^= 1 << 20
        return state

    replay.restore = restored
    return way.audit(load_recipe("gpt", [*SMALL, "max_steps=11", *words]), path).differing


def broken(path: str) -> str:
    """A run whose fourth sample, the second one of rank 1, makes the loss NaN: what all ranks say of it."""
    try:
        surefoot.train(of_ragged(3, max_steps=3), path=path)
    except NonFinite as error:
        return str(error)
    return ""
