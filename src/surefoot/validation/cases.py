"""The recipes that validate a device: a dozen, each in sizes from small to large."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from surefoot.recipe.recipe import Precision
from surefoot.records.validation import Row


@dataclass(frozen=True)
class Case:
    """A recipe, and its knobs from the smallest size to the largest. The largest that fits and is quick is measured."""

    name: str
    recipe: str
    sizes: tuple[str, ...]
    """The knobs of each size, separated by spaces."""
    always: str = ""
    """Knobs of every size."""
    ranks: int = 1

    def words(self, size: int) -> list[str]:
        return [*self.sizes[size].split(), *self.always.split()]


def _gpt(*, micro_batch_size: int, micro_batches: int = 1, ranks: int = 1) -> tuple[str, ...]:
    """Sizes of gpt, with one batch for all: its own tokens differ by size."""
    shapes = {"tiny": 128, "small": 256, "gpt2": 1024, "gpt2-medium": 1024, "gpt2-large": 1024, "gpt2-xl": 1024}
    steps = {size: context * micro_batch_size * micro_batches * ranks for size, context in shapes.items()}
    batch = f"micro_batch_size={micro_batch_size}"
    return tuple(f"size={size} {batch} global_batch_tokens={tokens}" for size, tokens in steps.items())


CASES = (
    Case("regression", "regression", ("samples=1024",)),
    Case("sentiment", "sentiment", ("", "hidden=1024 micro_batch_size=1024 global_batch_tokens=2048 samples=8192")),
    Case(
        "cruncher", "cruncher", tuple(f"width={width} layers=8 samples=256" for width in (512, 1024, 4096, 8192, 16384))
    ),
    Case("fashion", "fashion", tuple(f"hidden={hidden}" for hidden in (256, 1024, 4096, 16384))),
    Case(
        "convolutions", "fashion", ("micro_batch_size=64", "", "micro_batch_size=1024"), always="network=convolutional"
    ),
    Case("gpt-fp32", "gpt", _gpt(micro_batch_size=8), always="precision=32-true"),
    Case("gpt-bf16", "gpt", _gpt(micro_batch_size=8), always="precision=bf16-mixed"),
    Case("gpt-recompute", "gpt", _gpt(micro_batch_size=8), always="precision=bf16-mixed recompute=full"),
    Case("gpt-accumulate", "gpt", _gpt(micro_batch_size=4, micro_batches=4), always="precision=32-true"),
    Case(
        "llama",
        "llama",
        (
            "size=tiny layers=2 context=64 micro_batch_size=2",
            "size=tiny",
            *(f"size=8b layers={layers} context=2048" for layers in (1, 2, 4, 8, 16, 32)),
        ),
    ),
)
ON_TWO = (
    Case("gpt-replicas", "gpt", _gpt(micro_batch_size=4, ranks=2), always="precision=32-true dp_replicate=2", ranks=2),
    Case("gpt-shards", "gpt", _gpt(micro_batch_size=4, ranks=2), always="precision=bf16-mixed dp_shard=2", ranks=2),
)
"""For two GPUs, or two processes on a CPU."""
ON_A_GPU = (
    Case("gpt-fp16", "gpt", _gpt(micro_batch_size=8), always="precision=16-mixed"),
    Case("gpt-bf16-true", "gpt", _gpt(micro_batch_size=8), always="precision=bf16-true"),
)
"""For an accelerator. On a CPU they take long and show little."""
ALL_REDUCE = "all-reduce"
PARTS = (
    "allocate",
    *(f"step-{precision}" for precision in get_args(Precision)),
    ALL_REDUCE,
    "resume",
    "watch",
    "profiler",
    "cuda-calls",
)
"""The parts of the preflight. A step in each precision, on any number of GPUs."""
MODELS = ("gpt size=gpt2", "gpt size=gpt2-xl", "llama size=8b")
"""The models for which a search says what fits."""


def cases_for(kind: str, count: int) -> tuple[Case, ...]:
    """The recipes for a device. Other accelerators than CUDA have no collectives that surefoot knows."""
    two = kind == "cpu" or (kind == "cuda" and count > 1)
    return (*CASES, *(() if kind == "cpu" else ON_A_GPU), *(ON_TWO if two else ()))


def failed(case: Case, reason: str, *, seconds: float = 0.0) -> Row:
    """The row of a recipe that did not run to its end, with the knobs of its smallest size."""
    words = tuple(case.words(0))
    return Row(case.name, case.recipe, words, "failed", reason, ranks=case.ranks, seconds=seconds)


def images_in(folder: Path) -> str:
    """Writes made-up images in the format of Fashion-MNIST, and returns the knob that names their folder."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 2048), ("t10k", 256)):
        labels = generator.integers(0, 10, count, dtype=np.uint8)
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (folder / name).write_bytes(header + array.tobytes())
    return f"folder={folder}"
