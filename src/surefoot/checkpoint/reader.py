"""Reads tensors that `writer` wrote, without executing any code from a file."""

import io
import pickle
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import ReadItem

from surefoot.errors import CheckpointError
from surefoot.records.plain_files import read_plain

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


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in ALLOWED.get(module, ()) or (module == "torch" and isinstance(_of_torch(name), torch.dtype)):
            return super().find_class(module, name)
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
        metadata = _MetadataUnpickler(io.BytesIO(read_plain(folder / METADATA))).load()
        for info in metadata.storage_data.values():
            if info.relative_path not in files or getattr(info, "transform_descriptors", None):
                raise CheckpointError(
                    f"{METADATA} points to {info.relative_path!r}, which is not part of the checkpoint"
                )
    except CheckpointError:
        raise
    except Exception as error:  # a forged pickle can fail in any way
        raise CheckpointError(f"{METADATA} cannot be read: {error!r}") from error
    return metadata


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
