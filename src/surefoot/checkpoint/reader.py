"""Reads tensors that `writer` wrote, without executing any code from a file."""

import importlib
import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

from surefoot.checkpoint.pickled import PickleBomb, load_pickle
from surefoot.errors import CheckpointError
from surefoot.plain_files import open_limited

METADATA = ".metadata"

ALLOWED = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorStorageMetadata",
        "TensorProperties",
        "ChunkStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
}
"""The classes that DCP's metadata may name, besides dtypes. Bytes are excluded, since DCP would unpickle them."""


def _allowed(module: str, name: str) -> Any:
    if name in ALLOWED.get(module, ()) or (module == "torch" and isinstance(_of_torch(name), torch.dtype)):
        return getattr(importlib.import_module(module), name)
    raise CheckpointError(
        f"{METADATA} names {module}.{name}, which no checkpoint of tensors needs; surefoot does not load it"
    )


def _of_torch(name: str) -> Any:
    return getattr(torch, name, None)


class _Planner(DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        raise CheckpointError(f"{read_item.dest_index.fqn} is a pickle, not a tensor; surefoot does not load it")


def read_metadata(folder: Path, files: Collection[str]) -> Metadata:
    """DCP's metadata, restricted to the classes in `ALLOWED` and to files of the checkpoint."""
    try:
        with open_limited(folder / METADATA) as opened:
            metadata = load_pickle(opened, _allowed)
        _refuse_odd(metadata, files)
    except CheckpointError:
        raise
    except PickleBomb as error:
        raise CheckpointError(f"{METADATA} {error}: no checkpoint needs that; it was forged") from None
    except Exception as error:  # a forged pickle can fail in any way
        raise CheckpointError(f"{METADATA} cannot be read: {error!r}") from error
    return metadata


def _refuse_odd(metadata: Metadata, files: Collection[str]) -> None:
    """Refuses other files, and sizes that are not torch's: to compare or print tuples of tuples could take for ever."""
    for info in metadata.storage_data.values():
        path = info.relative_path
        if not isinstance(path, str) or path not in files or getattr(info, "transform_descriptors", None):
            named = repr(path) if isinstance(path, str) else f"a {type(path).__name__}"
            raise CheckpointError(f"{METADATA} points to {named}, which is not part of the checkpoint")
    about = list(metadata.state_dict_metadata.values())
    if not all(isinstance(each, TensorStorageMetadata) and isinstance(each.size, torch.Size) for each in about):
        raise CheckpointError(f"{METADATA} describes something else than tensors; it was forged")
    lists = {id(each.chunks): each.chunks for each in about if isinstance(each, TensorStorageMetadata)}
    chunks = (chunk for each in lists.values() for chunk in each)  # a list that many tensors share is looked at once
    if not all(isinstance(size, torch.Size) for chunk in chunks for size in (chunk.offsets, chunk.sizes)):
        raise CheckpointError(f"{METADATA} gives a chunk a size that is not torch's; it was forged")


def read_tensors(folder: Path, files: Collection[str], into: dict[str, torch.Tensor]) -> None:
    """Fills tensors in place, however the saved ones were sharded. Ranks do not wait for each other."""
    metadata = read_metadata(folder, files)
    planner, reader = _Planner(flatten_state_dict=False, flatten_sharded_tensors=False), FileSystemReader(folder)
    try:
        planner.set_up_planner(into, metadata, False)
        reader.set_up_storage_reader(metadata, False)
        plan = reader.prepare_local_plan(planner.create_local_plan())
        reader.read_data(planner.finish_plan(plan), planner).wait()
    except CheckpointError:
        raise
    except Exception as error:  # the hashes were right, so this file was forged
        raise CheckpointError(f"{folder.name} cannot be loaded: {error}") from error
