"""Exchanges the facts that each rank alone knows, after every step: its clock, its samples, its signals."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.records.log import MOST_SAMPLES, digest_of
from surefoot.step import Step
from surefoot.techniques.mesh import Layout
from surefoot.world.world import World


@dataclass(frozen=True)
class Told:
    """The step as all ranks saw it. Seconds are the slowest rank's; samples are in the order of a single rank."""

    seconds: float
    data_seconds: float
    own_seconds: list[float]
    samples: tuple[int, ...] | None
    digest: int
    batch_digest: int
    asked_to_stop: list[int]


def tell_all(
    world: World,
    step: Step,
    *,
    seconds: float,
    data_seconds: float,
    own_seconds: float,
    taken: list[int],
    hashes: list[int],
    asked: bool,
) -> Told:
    """Sends a few numbers from every rank to every rank.

    It sends the sample numbers only if they are few. Otherwise it sends only their digest.
    """
    layout, size = step.layout, step.recipe.micro_batch_size
    count = step.micro_batches * size  # a stream can end with fewer
    few = count * layout.data_ranks <= MOST_SAMPLES
    if layout.ranks == 1:
        samples = tuple(taken) if few else None
        batch = digest_of(list(map(_signed, hashes)))
        return Told(seconds, data_seconds, [own_seconds], samples, digest_of(taken), batch, [0] * asked)
    digest = digest_of(taken, _places(layout, len(taken), size)) if layout.leads else 0
    batch = digest_of(list(map(_signed, hashes)), _places(layout, len(hashes), 1)) if layout.leads else 0
    times = [round(each * 1e9) for each in (seconds, data_seconds, own_seconds)]
    named = [*taken, *[-1] * (count - len(taken))] if few else []
    told = world.gather([asked, *times, _signed(digest), _signed(batch), *named])
    stops, lasted, waited, own, digests, batches, *_ = zip(*told, strict=True)
    return Told(
        seconds=max(lasted) / 1e9,
        data_seconds=max(waited) / 1e9,
        own_seconds=[each / 1e9 for each in own],
        samples=_in_order([row[6:] for row in told[:: layout.alike]], size) if few else None,
        digest=sum(digests) % 2**64,
        batch_digest=sum(batches) % 2**64,
        asked_to_stop=[rank for rank, stop in enumerate(stops) if stop],
    )


def _signed(number: int) -> int:
    """The number as a signed 64-bit integer, which torch's int64 can hold."""
    return number - (number >> 63 << 64)


def _places(layout: Layout, count: int, size: int) -> list[int]:
    """The positions of this rank's samples in the step. Ranks take turns, one micro-batch each."""
    return [(at // size * layout.data_ranks + layout.data_rank) * size + at % size for at in range(count)]


def _in_order(taken: list[list[int]], size: int) -> tuple[int, ...]:
    """The samples of all ranks in the order of the step: ranks take turns, `size` samples each."""
    turns = range(0, len(taken[0]), size)
    numbers = (number for turn in turns for mine in taken for number in mine[turn : turn + size])
    return tuple(number for number in numbers if number >= 0)
