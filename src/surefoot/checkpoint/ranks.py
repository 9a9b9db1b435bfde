"""Ranks: one exchange between all ranks, in which a failure anywhere is a failure everywhere."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch.distributed as dist

from surefoot.errors import CheckpointError

Made = TypeVar("Made")
Reply = TypeVar("Reply")


@dataclass(frozen=True)
class _Failure:
    rank: int
    text: str


class Ranks:
    """This process among the ranks of the default process group; alone if there is none.

    It uses a separate process group on the CPU: a save in the background must not
    interfere with the collectives of a step.
    """

    def __init__(self) -> None:
        many = dist.is_available() and dist.is_initialized()
        self._group = dist.new_group(backend="gloo") if many else None
        self.rank = dist.get_rank() if many else 0
        self.size = dist.get_world_size() if many else 1

    def exchange(self, work: Callable[[], Made], settle: Callable[[list[Made]], list[Reply]]) -> Reply:
        """Every rank does `work`. Rank 0 turns all results into one reply for each rank."""
        if self._group is None:
            return settle([work()])[0]
        everyone = self._gather(self._attempt(work))
        reply: Any = self._scatter(self._attempt(lambda: _settled(everyone, settle)) if everyone else None)
        if isinstance(reply, _Failure):
            raise CheckpointError(f"rank {reply.rank}: {reply.text}")
        return cast(Reply, reply)

    def from_first(self, work: Callable[[], Made]) -> Made:
        """Does `work` on rank 0 only. Every rank returns its result."""
        return self.exchange(lambda: None, lambda _: [work()] * self.size)

    def _attempt(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except _FailedElsewhere as error:
            return error.failure
        except Exception as error:
            return _Failure(self.rank, f"{error}" if isinstance(error, CheckpointError) else repr(error))

    def _gather(self, mine: Any) -> list[Any] | None:
        everyone: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(mine, everyone, dst=0, group=self._group)
        return everyone

    def _scatter(self, replies: Any) -> Any:
        if isinstance(replies, _Failure):
            replies = [replies] * self.size
        mine = [None]
        dist.scatter_object_list(mine, replies, src=0, group=self._group)
        return mine[0]


class _FailedElsewhere(Exception):
    def __init__(self, failure: _Failure) -> None:
        self.failure = failure


def _settled(everyone: list[Any], settle: Callable[[list[Any]], list[Any]]) -> list[Any]:
    for made in everyone:
        if isinstance(made, _Failure):
            raise _FailedElsewhere(made)
    return settle(everyone)
