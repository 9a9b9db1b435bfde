"""merge: writes the trained weights of a run as a Hugging Face folder, and proves that they compute the same."""

import os
from pathlib import Path

import torch

from surefoot.errors import ParityError, RunError
from surefoot.exports.adapter import has_adapters, merged, merged_tolerance, stored_format
from surefoot.exports.example_call import example_call
from surefoot.exports.outputs import difference
from surefoot.exports.source import finished_run
from surefoot.exports.trained import trained_model
from surefoot.exports.transformers_folder import copied_files, write_folder
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.merged import Merged
from surefoot.techniques.adapters import four_bit_layers
from surefoot.techniques.precision import autocast
from surefoot.training.trust import recipe_of
from surefoot.training.weights import verified_weights
from surefoot.world.world import World


def merge(path: str, recipe: str | Recipe | None = None, *, to: str | None = None, trust_run: bool = False) -> Merged:
    """Adds the adapters of a finished run to its weights and writes them as a Hugging Face folder.

    4-bit layers are written in the number format of the other parameters. A run without adapters is written as it is.
    The folder is read back by transformers, and its outputs are compared with those of the trained model.
    """
    run = finished_run(path)
    folder = Path(to) if to else Path(path) / "merged"
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty; name another folder with --to, or remove it")
    world = World()
    with kept(), world, torch.no_grad():
        recipe = recipe_of(run, path, recipe, trust_run=trust_run)
        model = trained_model(recipe, world, verified_weights(run))
        stored = stored_format(recipe.precision)
        method = _method(model)
        call = example_call(recipe, model, model, world)
        with autocast(recipe.precision, world.device):
            expected = call.of(model)
        plain = merged(model, stored)
        write_folder(plain, folder, recipe.init_from)
        again = type(plain).from_pretrained(str(folder), local_files_only=True, use_safetensors=True, dtype=stored)  # type: ignore[attr-defined]
        with autocast(recipe.precision, world.device):
            found = difference(expected, call.of(again.to(world.device).eval()))
    tolerance = merged_tolerance(recipe.precision)
    if not found <= tolerance:
        raise ParityError(
            f"the outputs of the merged model differ from those of the trained one: relative difference {found:.3g}, "
            f"allowed {tolerance:.3g}; do not use the files in {folder}"
        )
    return Merged(
        run=str(path),
        folder=str(folder),
        total_bytes=sum(os.path.getsize(each) for each in folder.glob("*.safetensors")),
        parameters=sum(each.numel() for each in again.parameters()),
        method=method,
        inputs=call.texts(),
        tolerance=tolerance,
        difference=found,
        copied=copied_files(folder),
    )


def _method(model: torch.nn.Module) -> str:
    if not has_adapters(model):
        return "nothing: the run trained the weights themselves"
    return "adapters on 4-bit layers" if four_bit_layers(model) else "adapters"
