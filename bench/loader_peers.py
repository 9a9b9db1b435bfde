"""Loaders of others, each giving batches of tokens and targets as int64, forever, from the same stream of tokens.

Each is used as its own documentation shows it, over a copy of the tokens in its own format, shuffled.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

Batch = tuple[torch.Tensor, torch.Tensor]

PACKAGES = [
    *("torchdata", "litdata", "datasets", "webdataset", "grain"),
    *("lightning-utilities", "boto3", "obstore", "tifffile", "pandas", "aiohttp", "absl-py", "array-record"),
    *("cloudpickle", "etils", "braceexpand", "httpx", "protobuf", "botocore", "jmespath", "s3transfer"),
    *("python-dateutil", "urllib3", "six", "portpicker"),
]
"""With what they need and torch's own environment may lack. Installed without following dependencies: some ask for
torchvision, which asks for another torch."""


def split(rows: torch.Tensor) -> Batch:
    return rows[:, :-1], rows[:, 1:]


class Rows(Dataset[torch.Tensor]):
    """A flat file as rows of `context + 1` tokens; opened where it is read."""

    def __init__(self, path: Path, length: int) -> None:
        self.path, self.length, self._rows = path, length, None

    @property
    def rows(self) -> np.ndarray:
        if self._rows is None:
            flat = np.memmap(self.path, np.uint16, "r")
            self._rows = flat[: len(flat) // self.length * self.length].reshape(-1, self.length)
        return self._rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[index].astype(np.int64))


class BatchedRows(Rows):
    """The same, asked for whole batches."""

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return torch.from_numpy(self.rows[np.asarray(indices)].astype(np.int64))


def forever(epoch: Callable[[], Any]) -> Iterator[Any]:
    while True:
        yield from epoch()


def bare_memmap(path: Path, context: int, size: int) -> Iterator[Batch]:
    """The least that can be done: a map kept open, random rows, one copy."""
    rows, random = Rows(path, context + 1).rows, np.random.default_rng(0)
    while True:
        yield split(torch.from_numpy(rows[random.integers(0, len(rows), size)].astype(np.int64)))


def nanogpt(path: Path, context: int, size: int) -> Iterator[Batch]:
    """`get_batch` of nanoGPT's train.py: opens the map for every batch, and draws with replacement."""
    while True:
        data = np.memmap(path, np.uint16, "r")
        places = torch.randint(len(data) - context, (size,))
        tokens = torch.stack([torch.from_numpy(data[at : at + context].astype(np.int64)) for at in places])
        targets = torch.stack([torch.from_numpy(data[at + 1 : at + 1 + context].astype(np.int64)) for at in places])
        yield tokens, targets


def torch_dataloader(
    path: Path, context: int, size: int, *, workers: int = 0, kind: Any = DataLoader
) -> Iterator[Batch]:
    persistent = {"persistent_workers": True} if workers else {}
    loader = kind(
        Rows(path, context + 1), batch_size=size, shuffle=True, drop_last=True, num_workers=workers, **persistent
    )
    return map(split, forever(lambda: loader))


def stateful_dataloader(
    path: Path, context: int, size: int, *, workers: int = 0, batched: bool = False
) -> Iterator[Batch]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    if not batched:
        return torch_dataloader(path, context, size, workers=workers, kind=StatefulDataLoader)
    rows = BatchedRows(path, context + 1)
    loader = StatefulDataLoader(rows, batch_size=size, shuffle=True, drop_last=True, collate_fn=lambda batch: batch)
    return map(split, forever(lambda: loader))


def litdata(path: Path, context: int, size: int, *, workers: int = 0) -> Iterator[Batch]:
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader, optimize

    folder = path.with_name(f"litdata-{context}")
    if not folder.exists():
        optimize(
            fn=litdata_pieces,
            inputs=[str(path)],
            output_dir=str(folder),
            chunk_bytes="64MB",
            num_workers=1,
            item_loader=TokensLoader(block_size=context + 1),
        )
    data = StreamingDataset(str(folder), item_loader=TokensLoader(block_size=context + 1), shuffle=True, drop_last=True)
    loader = StreamingDataLoader(data, batch_size=size, num_workers=workers)
    return (split(batch.to(torch.int64)) for batch in forever(lambda: loader))


def litdata_pieces(path: str) -> Iterator[torch.Tensor]:
    flat = np.fromfile(path, np.uint16)
    for first in range(0, len(flat), 1 << 20):
        yield torch.from_numpy(flat[first : first + (1 << 20)].astype(np.int32))


def hf_datasets(path: Path, context: int, size: int, *, form: str = "numpy") -> Iterator[Batch]:
    import datasets
    import pyarrow

    datasets.disable_progress_bars()
    folder = path.with_name(f"arrow-{context}")
    if not folder.exists():
        rows = Rows(path, context + 1).rows
        column = pyarrow.FixedSizeListArray.from_arrays(
            pyarrow.array(np.ascontiguousarray(rows).reshape(-1)), context + 1
        )
        datasets.Dataset(pyarrow.table({"tokens": column})).save_to_disk(str(folder))
    data = datasets.load_from_disk(str(folder)).shuffle(seed=0)
    if form == "numpy":
        shaped = data.with_format("numpy")
        batches = forever(lambda: shaped.iter(size, drop_last_batch=True))
        return (split(torch.from_numpy(batch["tokens"].astype(np.int64))) for batch in batches)
    loader = DataLoader(data.with_format("torch"), batch_size=size, drop_last=True)
    return (split(batch["tokens"].to(torch.int64)) for batch in forever(lambda: loader))


def webdataset(path: Path, context: int, size: int) -> Iterator[Batch]:
    import webdataset as library

    archive = path.with_name(f"rows-{context}.tar")
    if not archive.exists():
        with tarfile.open(archive, "w") as tar:
            for number, row in enumerate(Rows(path, context + 1).rows[:20_000]):
                entry = tarfile.TarInfo(f"{number:08d}.bin")
                entry.size = row.nbytes
                tar.addfile(entry, BytesIO(row.tobytes()))

    def stacked(rows: list[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    data = library.WebDataset(str(archive), shardshuffle=False, empty_check=False).shuffle(1000)
    data = data.map(lambda sample: np.frombuffer(sample["bin"], np.uint16)).batched(size, stacked, partial=False)
    return map(split, forever(lambda: data))


def grain(path: Path, context: int, size: int) -> Iterator[Batch]:
    import grain as library

    rows = Rows(path, context + 1)

    class Source:
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, index: int) -> np.ndarray:
            return rows.rows[index].astype(np.int64)

    data = library.MapDataset.source(Source()).shuffle(seed=1).repeat().batch(size, drop_remainder=True)
    return (split(torch.from_numpy(data[number])) for number in range(len(data)))


TORCH = {
    "memmap": {"memmap": bare_memmap},
    "nanogpt": {"nanoGPT get_batch": nanogpt},
    "torch_dataloader": {
        "DataLoader": torch_dataloader,
        "DataLoader, 2 workers": lambda *given: torch_dataloader(*given, workers=2),
    },
}
"""What needs nothing but torch."""

OTHERS = {
    "stateful_dataloader": {
        "StatefulDataLoader": stateful_dataloader,
        "StatefulDataLoader, __getitems__": lambda *given: stateful_dataloader(*given, batched=True),
        "StatefulDataLoader, 2 workers": lambda *given: stateful_dataloader(*given, workers=2),
    },
    "litdata": {"litdata": litdata, "litdata, 2 workers": lambda *given: litdata(*given, workers=2)},
    "hf_datasets": {
        "HF datasets, numpy": hf_datasets,
        "HF datasets, torch": lambda *given: hf_datasets(*given, form="torch"),
    },
    "webdataset": {"WebDataset": webdataset},
    "grain": {"grain MapDataset": grain},
}

os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
