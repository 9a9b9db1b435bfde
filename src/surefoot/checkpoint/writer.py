"""Writes tensors with torch.distributed.checkpoint, and verifies that every planned piece was written."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from surefoot.checkpoint.files import Fingerprint, new_file
from surefoot.checkpoint.ranks import Ranks
from surefoot.errors import CheckpointError


class _Files(FileSystem):
    """Creates new files only, each hashed and synced. `written` holds the fingerprint of every finished file."""

    def __init__(self) -> None:
        self.written: dict[str, Fingerprint] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with new_file(Path(path)) as file:
            yield file
        self.written[Path(path).name] = file.fingerprint()

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self.written[Path(new_path).name] = self.written.pop(Path(path).name)


class _Writer(FileSystemWriter):
    """Writes DCP's files and format. It uses one thread: with more, DCP drops the errors of all but the first.

    Tensors are in host memory by now, so nothing is copied ahead: DCP would ask the device for streams, which not every
    device has.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, thread_count=1, sync_files=False, overwrite=False, per_thread_copy_ahead=0)
        self.fs: _Files = _Files()

    def storage_meta(self) -> StorageMeta:
        """Leaves out the folder's path: the folder is renamed later, and `Path` would be a class from outside DCP."""
        return StorageMeta(save_id=self.save_id)


def write_tensors(
    folder: Path,
    tensors: dict[str, torch.Tensor],
    ranks: Ranks,
    complete: Callable[[dict[str, Fingerprint]], None],
) -> None:
    """Every rank writes its share. When all are done, rank 0 calls `complete` with all files."""
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    writer = _Writer(folder)
    metadata: Metadata

    def propose() -> SavePlan:
        first = ranks.rank == 0
        planner.set_up_planner(tensors, writer.storage_meta(), first)
        writer.set_up_storage_writer(first)  # torch 2.8 takes nothing else, and the others need nothing else
        return writer.prepare_local_plan(planner.create_local_plan())

    def divide(plans: list[SavePlan]) -> list[SavePlan]:
        nonlocal metadata
        shares, metadata = planner.create_global_plan(plans)
        return writer.prepare_global_plan(shares)

    def write() -> tuple[list[WriteResult], dict[str, Fingerprint]]:
        results = writer.write_data(plan, planner).wait()
        _reconcile((item.index for item in plan.items), results)
        return results, writer.fs.written

    def finish(everyone: list[tuple[list[WriteResult], dict[str, Fingerprint]]]) -> list[None]:
        results = [results for results, _ in everyone]
        _count(metadata, {result.index for written in results for result in written})
        writer.finish(metadata, results)
        files = {name: each for _, written in everyone for name, each in written.items()}
        complete({**files, **writer.fs.written})
        return [None] * ranks.size

    plan = planner.finish_plan(ranks.exchange(propose, divide))
    ranks.exchange(write, finish)


def _reconcile(planned: Iterable[Any], results: list[WriteResult]) -> None:
    """Raises if a planned piece was not written."""
    missing = set(planned) - {result.index for result in results}
    if missing:
        names = ", ".join(sorted({index.fqn for index in missing})[:5])
        raise CheckpointError(f"{len(missing)} planned entries were not written, among them {names}")


def _count(metadata: Metadata, written: set[Any]) -> None:
    """Raises if the metadata lists other pieces of tensors than were written."""
    tensors = [each for each in metadata.state_dict_metadata.values() if isinstance(each, TensorStorageMetadata)]
    promised = sum(len(each.chunks) for each in tensors)
    if promised != len(written):
        raise CheckpointError(f"{len(written)} of {promised} planned entries were written")
