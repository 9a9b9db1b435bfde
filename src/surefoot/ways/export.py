"""export: writes the weights and the program of a finished run, and proves that they compute the same."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from surefoot.checkpoint.consolidate import INDEX, TensorsOf, state_names
from surefoot.checkpoint.consolidate import write_weights as write_set
from surefoot.checkpoint.files import fingerprint
from surefoot.checkpoint.names import name_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import ParityError, RunError
from surefoot.exports.adapter import write_adapter
from surefoot.exports.example_call import Call
from surefoot.exports.format_table import FORMATS, GGUF, GGUF_KINDS, PROGRAM, begins_with_program
from surefoot.exports.formats import Job, check_names, write_format
from surefoot.exports.gguf_kinds import quantiser, write_kinds
from surefoot.exports.model_card import CARD, card_of
from surefoot.exports.outputs import difference
from surefoot.exports.plain_call import plain_call
from surefoot.exports.program import Program, program_difference, refuse_names, save_program
from surefoot.exports.quantised_file import Trained, write_quantised
from surefoot.exports.quantize import check_kind
from surefoot.exports.source import finished_run
from surefoot.exports.trained import trained_model
from surefoot.plain_files import create_new, make_folder, refusals_of, sync_file, sync_folder, write_whole
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.export import Export, Weights, write_export
from surefoot.records.run import read_run
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
    formats: Sequence[str] = (),
    quantize: str | Sequence[str] | None = None,
    trust_run: bool = False,
) -> Export:
    """Writes `model.safetensors` and `model.pt2` and compares each, read back from disk, with the model.

    `formats` names what to write besides the weights in place of `model.pt2`: `pt2`, or those that `surefoot export
    --help` lists. Each is run and compared. The folder also gets a model card, `README.md`.

    `quantize` is `int8` or `int8-dynamic`: then `model.int8.safetensors` is written too, with the weights of linear
    layers in int8. The record says what that costs on the recipe's held-out data. With the format `gguf` it may also be
    one or several types of llama.cpp, such as `Q4_K_M`: its own quantiser makes `model.Q4_K_M.gguf`, and the record has
    perplexities before and after.

    If torch.export cannot make a program, the record says why, and the weights are written anyway.

    If the recipe has several networks, the weights are those of all, and the program is that of `network`; the default
    is the first.

    `recipe` is the recipe of the run; a run of a built-in recipe needs none. surefoot executes the code that the run
    itself holds or names only with `trust_run`.
    """
    check_names(list(formats))
    int8, kinds = _checked_kinds([quantize] if isinstance(quantize, str) else quantize or (), formats)
    run = finished_run(path, instead=", or export with --weights")
    world = World()
    with kept(), world, torch.no_grad():
        recipe = recipe_of(run, path, recipe, trust_run=trust_run)
        folder = _folder(path, to)
        weights, file = folder / "model.safetensors", folder / "model.pt2"
        whole = trained_model(recipe, world, verified_weights(run))
        model = _network(whole, network)
        if begins_with_program(formats):
            refuse_names(model)
        call = plain_call(recipe, whole, model, world)
        write_weights(weights, TensorsOf(whole))
        adapter = write_adapter(model, call, folder / "adapter")
        output = call.of(model)
        wants_program = not formats or PROGRAM in formats
        program = _program(model, call, output, file, folder) if wants_program else Program()
        rebuilt = _network(trained_model(recipe, world, weights), network)
        differences = {"weights": difference(output, call.of(rebuilt))}
        if adapter is not None:
            differences["adapter"] = adapter.difference
        has_program = wants_program and not program.reason
        if has_program:
            differences["program"] = program_difference(call, output, file, program)
        others = [name for name in dict.fromkeys(formats) if name in FORMATS]
        job = Job(recipe, model, call, output)
        written = tuple(write_format(job, name, folder) for name in others)
        if not wants_program and any(each.program_sizes and not each.reason for each in written):
            program = job.about_program
        float_gguf = next((each for each in written if each.format == GGUF and each.is_equal), None)
        quantised_gguf = write_kinds(job, whole, kinds, Path(float_gguf.path), world) if kinds and float_gguf else []
        quantised = None
        if int8 is not None:
            trained = Trained(recipe, whole, weights, call, output)
            quantised = write_quantised(trained, int8, folder, world, lambda each: _network(each, network))
            differences["int8 weights"] = quantised.file_difference
    record = Export(
        run=str(path),
        weights=str(weights),
        program=str(file) if has_program else "",
        weights_bytes=os.path.getsize(weights),
        program_bytes=os.path.getsize(file) if has_program else 0,
        inputs=call.texts(),
        dynamic_batch=any(0 in dims for dims in program.sizes.free),
        tolerance=TOLERANCE,
        weights_difference=differences["weights"],
        program_difference=differences.get("program", 0.0),
        free=program.sizes.free,
        fixed=program.sizes.fixed,
        limits=program.sizes.limits,
        left_out=program.left_out,
        why_no_program=program.reason,
        recipe=run.recipe,
        target=run.target,
        knobs=run.knobs,
        source_digest=run.source_digest,
        weights_digest=fingerprint(weights).xxh3_128,
        formats=written,
        adapter=str(adapter.folder) if adapter else "",
        adapter_bytes=adapter.size_bytes if adapter else 0,
        adapter_difference=differences.get("adapter", 0.0),
        quantised=quantised,
        quantised_gguf=tuple(quantised_gguf),
    )
    for name, found in differences.items():
        if not found <= TOLERANCE:
            raise ParityError(
                f"the outputs of the exported {name} differ from those of the trained model: relative difference "
                f"{found:.3g}, allowed {TOLERANCE:.3g}; do not use the files in {folder}"
            )
    for each in written:
        if not each.reason and not each.is_equal:
            raise ParityError(
                f"the outputs of {each.path} differ from those of the trained model: relative difference "
                f"{each.difference:.3g}, allowed {each.tolerance:.3g}; the first module that differs: "
                f"{each.first_module or 'none'}; do not use it"
            )
    # The record is written last: without one, the files in a folder have not been found equal to the model.
    write_export(record)
    write_whole(folder / CARD, card_of(run, record), shared=True)
    for each in record.formats:
        if each.format == "hf" and not each.reason:
            write_whole(Path(each.path) / CARD, card_of(run, record, library="transformers"), shared=True)
    return record


def _checked_kinds(asked: Sequence[str], formats: Sequence[str]) -> tuple[str | None, list[str]]:
    """The kind of int8 weights, and the types of GGUF. Refuses what cannot be made here before anything is written."""
    kinds = [name for name in asked if name.upper() in GGUF_KINDS]
    int8 = [name for name in asked if name not in kinds]
    for name in int8:
        check_kind(name)
    if len(int8) > 1:
        raise RunError(f"one export writes one kind of int8 weights, not {' and '.join(int8)}; export twice, with --to")
    if kinds and GGUF not in formats:
        raise RunError(f"{kinds[0]} is a type of GGUF files: add --format gguf")
    if kinds:
        quantiser()
    return next(iter(int8), None), list(dict.fromkeys(name.upper() for name in kinds))


def _program(model: torch.nn.Module, call: Call, output: Any, file: Path, folder: Path) -> Program:
    """Writes the program, or none if torch.export cannot make one."""
    with refusals_of(file):
        made = save_program(model, call, output, create_new(file))
        if made.reason:
            file.unlink(missing_ok=True)
        else:
            sync_file(file)
        sync_folder(folder)
    return made


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
    return Weights(
        run=str(path),
        step=checkpoint.step,
        files=paths,
        total_bytes=sum(map(os.path.getsize, paths)),
        tensors=len(names),
        passed_over=tuple(passed_over),
        steps_after=sum(row.step > checkpoint.step for row in run.rows()),
    )


def _folder(path: str, to: str | None) -> Path:
    """Where to write: the folder that the user names, or a folder inside the run that is not a link."""
    folder = Path(to) if to else Path(path) / "export"
    if to is None and folder.is_symlink():
        raise RunError(f"{folder} is a link to {os.readlink(folder)!r}; remove it, or name a folder with --to")
    make_folder(folder)
    return folder


def _network(model: torch.nn.Module, name: str | None) -> torch.nn.Module:
    """The network of this name, or the first. A model that is one network has no name."""
    if not isinstance(model, torch.nn.ModuleDict):
        if name is not None:
            raise RunError(f"the recipe has one network, so there is none named {name!r}; leave it out")
        return model
    if name is not None and name not in model:
        raise RunError(f"the recipe has no network {name!r}; it has {', '.join(model)}")
    return model[name or next(iter(model))]
