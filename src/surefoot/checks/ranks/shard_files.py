"""Records which rank writes what to which file."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import torch
import torch.distributed as dist

from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, several, tensors
from surefoot.checks.facts.ranks import RankFacts, SharedFile
from surefoot.events.callers import caller
from surefoot.events.rank_notes import tell, told

WAIT = 5.0
"""The seconds that a rank which saved a file waits for notes of others."""
_MOMENT = "saved"


class ShardFiles(Observer):
    """The files of one rank, compared with those of others when the process group ends."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._files: dict[str, tuple[bool, str]] = {}
        """For each path: whether it holds only this rank's shards, and the line that saved it."""
        self._found: list[SharedFile] | None = None

    def __enter__(self) -> ShardFiles:
        if dist.is_available():
            self.follow(dist, "destroy_process_group", before=lambda *_, **__: self.files())
        return self

    def saving(self, contents: Contents, file: object) -> None:
        if not isinstance(file, str | os.PathLike) or not several():
            return
        path = f"{socket.gethostname()}:{os.path.abspath(file)}"
        shards = any(_is_shard(each) for each in tensors(contents.value))
        self._files[path] = shards or self._files.get(path, (False, ""))[0], caller()

    def files(self) -> list[SharedFile]:
        """Files that several ranks wrote, or that hold the shards of a single rank."""
        if self._found is None and several() and dist.get_backend() != "fake":
            tell({path: shards for path, (shards, _) in self._files.items()}, at=_MOMENT)
            others = told(wait_seconds=WAIT, at=_MOMENT) if self._files else []
            self._found = list(self._compared(others))
        return self._found or []

    def facts(self) -> Iterator[RankFacts]:
        yield RankFacts(shared_files=tuple(self.files()))

    def _compared(self, others: list[dict[str, bool]]) -> Iterator[SharedFile]:
        if not others:
            return
        for path, (shards, where) in self._files.items():
            writers = 1 + sum(path in each for each in others)
            alone = shards and not any(any(each.values()) for each in others)
            if writers > 1 or alone:
                yield SharedFile(path.partition(":")[2], where, writers=writers, ranks=1 + len(others), shards=shards)


def _is_shard(tensor: torch.Tensor) -> bool:
    return any(not each.is_replicate() for each in getattr(tensor, "placements", ()))
