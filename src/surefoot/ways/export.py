"""export: writes the weights and the program of a finished run, and proves that they compute the same."""

import math
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model

from surefoot.build import build_model
from surefoot.checkpoint.consolidate import INDEX, TensorsOf, state_names
from surefoot.checkpoint.consolidate import write_weights as write_set
from surefoot.checkpoint.names import name_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.data.batches import batches_of
from surefoot.errors import ParityError, RunError
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.export import Export, Weights
from surefoot.records.files import make_folder, refusals_of, sync_file, sync_folder
from surefoot.records.plain_files import create_new
from surefoot.records.run import read_run
from surefoot.techniques import own_step
from surefoot.techniques.precision import inputs_in, parameters_in
from surefoot.training.trust import recipe_of
from surefoot.training.weights import verified_weights, write_weights
from surefoot.world.world import World

TOLERANCE = 1e-5
"""Largest allowed difference between two outputs, as a share of the larger output's largest value."""

FILE_BYTES = 5 * 10**9
"""The largest file of a set, as in Hugging Face's libraries."""


def export(
    path: str,
    recipe: str | Recipe | None = None,
    *,
    to: str | None = None,
    network: str | None = None,
    trust_run: bool = False,
) -> Export:
    """Writes `model.safetensors` and `model.pt2` and compares each, read back from disk, with the model.

    If the recipe has several networks, the weights are those of all, and the program is that of `network`; the default
    is the first.

    `recipe` is the recipe of the run; a run of a built-in recipe needs none. surefoot executes the code that the run
    itself holds or names only with `trust_run`.
    """
    run = read_run(path)
    if run.status != "finished":
        raise RunError(
            f"{path} is {run.status}, not finished: finish it with the same `surefoot train`, or export with --weights"
        )
    world = World()
    with kept(), world, torch.no_grad():
        recipe = recipe_of(run, path, recipe, trust_run=trust_run)
        folder = _folder(path, to)
        weights, program = folder / "model.safetensors", folder / "model.pt2"
        whole = _built(recipe, world, verified_weights(run))
        model = _network(whole, network)
        inputs = _example_inputs(recipe, whole, model, world)
        write_weights(weights, TensorsOf(whole))
        with refusals_of(program):
            dynamic = _save_program(model, inputs, create_new(program))
            sync_file(program)
            sync_folder(folder)
        expected = model(*inputs)
        weights_difference = _difference(expected, _network(_built(recipe, world, weights), network)(*inputs))
        program_difference = _program_difference(model, inputs, program, dynamic)
    record = Export(
        run=str(path),
        weights=str(weights),
        program=str(program),
        weights_bytes=os.path.getsize(weights),
        program_bytes=os.path.getsize(program),
        inputs=tuple(f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in inputs),
        dynamic_batch=dynamic,
        tolerance=TOLERANCE,
        weights_difference=weights_difference,
        program_difference=program_difference,
    )
    for name, difference in (("weights", weights_difference), ("program", program_difference)):
        if not difference <= TOLERANCE:
            raise ParityError(
                f"the outputs of the exported {name} differ from those of the trained model: relative difference "
                f"{difference:.3g}, allowed {TOLERANCE:.3g}; do not use the files in {folder}"
            )
    return record


def export_weights(path: str, *, to: str | None = None, file_bytes: int = FILE_BYTES) -> Weights:
    """Writes the weights of a run's newest checkpoint as one set of safetensors, whichever ranks saved its shards.

    It takes one process and the memory of one file. The run need not be finished, and none of its code is executed:
    the checkpoint holds the names of its tensors.
    """
    run = read_run(path)
    checkpoints = Checkpoints(run.checkpoints)
    checkpoint = checkpoints.newest()
    if checkpoint is None:
        raise RunError(f"{path} has no checkpoint to export weights from")
    names = state_names(checkpoint)
    folder = _folder(path, to)
    for old in (*folder.glob("model*.safetensors"), folder / INDEX):
        old.unlink(missing_ok=True)
    files = write_set(checkpoint, names, folder, file_bytes=file_bytes)
    paths = tuple(str(folder / file) for file in files)
    passed_over = [f"{damaged.name}: {reason}" for damaged, reason in checkpoints.rejected]
    if not passed_over and checkpoint.step < run.saved_step:
        passed_over = [f"{name_of(run.saved_step, 1)}: it is missing"]
    return Weights(str(path), checkpoint.step, paths, sum(map(os.path.getsize, paths)), len(names), tuple(passed_over))


def _folder(path: str, to: str | None) -> Path:
    """Where to write: the folder that the user names, or a folder inside the run that is not a link."""
    folder = Path(to) if to else Path(path) / "export"
    if to is None and folder.is_symlink():
        raise RunError(f"{folder} is a link to {os.readlink(folder)!r}; remove it, or name a folder with --to")
    make_folder(folder)
    return folder


def _built(recipe: Recipe, world: World, weights: Path) -> torch.nn.Module:
    with world.device, parameters_in(recipe.precision):
        model = build_model(recipe).eval()
    load_model(model, str(weights), device=str(world.device))
    return model


def _network(model: torch.nn.Module, name: str | None) -> torch.nn.Module:
    """The network of this name, or the first. A model that is one network has no name."""
    if not isinstance(model, torch.nn.ModuleDict):
        if name is not None:
            raise RunError(f"the recipe has one network, so there is none named {name!r}; leave it out")
        return model
    if name is not None and name not in model:
        raise RunError(f"the recipe has no network {name!r}; it has {', '.join(model)}")
    return model[name or next(iter(model))]


class _Called(Exception):
    """The network was called: its inputs are known."""


def _example_inputs(
    recipe: Recipe, whole: torch.nn.Module, model: torch.nn.Module, world: World
) -> tuple[torch.Tensor, ...]:
    """The inputs of the network's first call in the recipe's loss, or in its own step, recorded by a hook."""
    taken: list[tuple[Any, ...]] = []

    def called(_: torch.nn.Module, args: tuple[Any, ...]) -> None:
        taken.append(args)
        raise _Called

    hook = model.register_forward_pre_hook(called)
    batch = inputs_in(recipe.precision, world.take(batches_of(recipe)))
    try:
        if recipe.step is not None:
            optimizers = own_step.optimizers_of(recipe.optimizer(whole), recipe.name)
            with torch.enable_grad():
                recipe.step(whole, own_step.handed_out(optimizers), batch)
        elif recipe.loss is not None:
            recipe.loss(whole, batch)
    except _Called:
        pass
    finally:
        hook.remove()
    if not taken or not taken[0] or not all(isinstance(each, torch.Tensor) for each in taken[0]):
        raise RunError(
            "the loss calls the model with other arguments than tensors; surefoot cannot export such a model yet"
        )
    return taken[0]


def _save_program(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], file: Path) -> bool:
    """Exports for a batch of any size if the model allows it. Returns whether it does."""
    batch = torch.export.Dim("batch", min=1)
    try:
        program = torch.export.export(model, inputs, dynamic_shapes=[{0: batch} for _ in inputs])
        dynamic = True
    except Exception:  # torch raises many types here; a program for one batch size is still useful
        program, dynamic = torch.export.export(model, inputs), False
    torch.export.save(program, file)
    return dynamic


def _program_difference(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], file: Path, dynamic: bool) -> float:
    """The largest difference on the example batch and, if its size may vary, on a batch of one."""
    loaded = torch.export.load(file).module()
    batches = [inputs, tuple(each[:1] for each in inputs)] if dynamic else [inputs]
    return max(_difference(model(*batch), loaded(*batch)) for batch in batches)


def _difference(expected: torch.Tensor, got: torch.Tensor) -> float:
    """The difference relative to the largest expected value; infinite if the shapes differ."""
    if expected.shape != got.shape:
        return math.inf
    scale = max(expected.abs().max().item(), torch.finfo(torch.float32).tiny)
    return (expected.float() - got.float()).abs().max().item() / scale
