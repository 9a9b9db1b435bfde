"""Told: what every rank knows of a step once each has told what it alone knows: its clock, its samples, its signals."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from surefoot.records.log import MOST_SAMPLES, digest_of
from surefoot.step import Step
from surefoot.techniques.mesh import Layout
from surefoot.world import World


@dataclass(frozen=True)
class Told:
    """The slowest rank's seconds; every sample, in the order in which one rank alone would have taken them."""

    seconds: float
    data_seconds: float
    samples: tuple[int, ...] | None
    digest: int
    asked_to_stop: tuple[int, ...]


def tell_all(world: World, step: Step, *, seconds: float, data_seconds: float, taken: list[int], asked: bool) -> Told:
    """One message of a few numbers from every rank to every rank.

    Samples are among them only where they are few; else their digest speaks for them.
    """
    layout, size = step.layout, step.recipe.micro_batch_size
    count = step.micro_batches * size  # a stream can end with fewer
    few = count * layout.data_ranks <= MOST_SAMPLES
    if layout.ranks == 1:
        return Told(seconds, data_seconds, tuple(taken) if few else None, digest_of(taken), (0,) * asked)
    times = [round(each * 1e9) for each in (seconds, data_seconds)]
    digest = digest_of(taken, _places(layout, len(taken), size)) if layout.speaks else 0
    named = [*taken, *[-1] * (count - len(taken))] if few else []
    told = world.gather([asked, *times, digest - (digest >> 63 << 64), *named])
    stops, slowest, longest_wait, digests = told[:, :4].unbind(dim=1)
    return Told(
        seconds=slowest.max().item() / 1e9,
        data_seconds=longest_wait.max().item() / 1e9,
        samples=_in_order(told[:: layout.tp, 4:], size) if few else None,
        digest=int(digests.sum()) % 2**64,
        asked_to_stop=tuple(stops.nonzero().flatten().tolist()),
    )


def _places(layout: Layout, count: int, size: int) -> list[int]:
    """Where this rank's samples stand in the step: ranks take turns, a micro-batch each."""
    return [(at // size * layout.data_ranks + layout.data_rank) * size + at % size for at in range(count)]


def _in_order(taken: torch.Tensor, size: int) -> tuple[int, ...]:
    """The samples of all ranks, one row each, as ranks took turns in them."""
    turns = (turn.flatten().tolist() for turn in taken.split(size, dim=1))
    return tuple(number for turn in turns for number in turn if number >= 0)
