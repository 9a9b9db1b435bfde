"""A trained model in transformers: a Hugging Face folder as it is, or a run or export that is written as one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.errors import RunError
from surefoot.exports.formats import Job, write_format
from surefoot.exports.plain_call import plain_call
from surefoot.exports.source import open_source
from surefoot.exports.trained import trained_model
from surefoot.exports.transformers_text import is_its_folder, open_folder
from surefoot.exports.weights_file import quantization_of
from surefoot.recipe.recipe import Recipe
from surefoot.world.world import World


@dataclass(frozen=True)
class InTransformers:
    """A model of transformers and its tokenizer, and what they were made from."""

    model: Any
    tokenizer: Any
    file: str
    name: str
    knobs: dict[str, Any] = field(default_factory=dict)
    about: str = ""


@contextmanager
def as_folder(
    path: str, recipe: str | Recipe | None, knobs: Iterable[str], *, trust_run: bool
) -> Iterator[InTransformers]:
    """Opens a folder, or writes one that lasts as long as the context. What was written is compared first."""
    world = World()
    with world:
        if is_its_folder(Path(path)):
            model, tokenizer = open_folder(Path(path))
            yield InTransformers(model.to(world.device), tokenizer, path, type(model).__name__)
            return
        source = open_source(path)
        made_by = source.recipe(recipe, knobs, trust_run=trust_run)
        if not source.is_weights or quantization_of(source.file) is not None:
            raise RunError(f"{source.file} cannot become a Hugging Face folder; name the run or its model.safetensors")
        network = trained_model(made_by, world, source.file)
        call = plain_call(made_by, network, network, world)
        with tempfile.TemporaryDirectory() as folder:
            written = write_format(Job(made_by, network, call, call.of(network)), "hf", Path(folder))
            if written.reason:
                raise RunError(f"{path} cannot become a Hugging Face folder: {written.reason}")
            if not written.difference <= written.tolerance:
                raise RunError(
                    f"{path} as a Hugging Face folder computes other numbers: relative difference "
                    f"{written.difference:.3g}, allowed {written.tolerance:.3g}; first in {written.first_module}"
                )
            model, tokenizer = open_folder(Path(written.path))
            yield InTransformers(
                model.to(world.device),
                tokenizer,
                str(source.file),
                made_by.name,
                dict(made_by.knobs),
                made_by.about,
            )
