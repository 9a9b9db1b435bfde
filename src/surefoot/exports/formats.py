"""The formats that export writes on request: each in its own file, run and compared with the model before it counts."""

from __future__ import annotations

import copy
import importlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import torch

from surefoot.errors import MissingPackage, RunError, installing, known_names
from surefoot.exports.adapter import has_adapters, merged, merged_tolerance, stored_format
from surefoot.exports.example_call import Call
from surefoot.exports.first_difference import Tapped, first_difference
from surefoot.exports.format_table import FORMATS, PROGRAM, WEIGHTS
from surefoot.exports.outputs import difference, tensors
from surefoot.exports.program import Program, export_program
from surefoot.exports.reasons import why
from surefoot.plain_files import make_folder, refusals_of, sync_folder
from surefoot.recipe.recipe import Recipe
from surefoot.records.export import Written

NARROW = 2.0**-5
"""The tolerance where outputs are bfloat16 or float16: four times the distance of two bfloat16 numbers."""

Runner = Callable[[Call], Any]
"""Runs what was written; returns the tensors of the output in their order, or a tree of them."""


class CannotWrite(Exception):
    """A format that this model cannot have, and why."""


@dataclass(frozen=True)
class Job:
    """A trained network to be written, and one call of it."""

    recipe: Recipe
    network: torch.nn.Module
    call: Call
    output: Any
    fixed: bool = False
    """Whether its program is for the sizes of the call alone."""

    @cached_property
    def _exported(self) -> tuple[torch.export.ExportedProgram | None, Program]:
        return export_program(self.network, self.call, self.output, fixed=self.fixed)

    @property
    def program(self) -> torch.export.ExportedProgram:
        """The program of torch.export. Raises `CannotWrite` with torch's reason if there is none."""
        program, about = self._exported
        if program is None:
            raise CannotWrite(about.reason)
        return program

    @property
    def about_program(self) -> Program:
        """What is known of the program: its free sizes, or why there is none."""
        return self._exported[1]

    @cached_property
    def merged(self) -> torch.nn.Module:
        """The network with its adapters in its weights, for formats that know none; the network itself without any.

        Raises `CannotWrite` if they cannot be merged.
        """
        if not has_adapters(self.network):
            return self.network
        try:
            return merged(copy.deepcopy(self.network), stored_format(self.recipe.precision)).eval()
        except RunError as error:
            raise CannotWrite(str(error)) from error

    @property
    def calls(self) -> list[tuple[Call, Any]]:
        """The calls to compare, with the network's outputs: the example, and those with other sizes."""
        program, about = self._exported
        return [(self.call, self.output), *(about.sizes.others if program is not None else ())]

    @property
    def has_free_sizes(self) -> bool:
        """Whether its program takes other sizes than those of the call."""
        return any(self.about_program.sizes.free)

    @property
    def names(self) -> list[str]:
        """The output's tensors by their places."""
        return list(tensors(self.output))


class Format(Protocol):
    """What the file of a format defines."""

    NAME: str
    """Of the file or folder that it writes."""
    TOLERANCE: float
    COMPARED: str
    """Where it is run."""
    MERGES: bool
    """Whether it writes `job.merged` in place of the network."""
    FIXES: bool
    """Optional: whether it is tried with the sizes of the example call alone, if it cannot have free ones."""

    def write(self, job: Job, path: Path) -> str:
        """Writes the model and returns a note. Raises `CannotWrite` if this model has no such form."""

    def runner(self, job: Job, path: Path) -> Runner:
        """Something that runs what was written."""

    def difference(self, job: Job, path: Path) -> float:
        """Optional, in place of `runner`, for a runtime that returns no whole output."""

    def first_module(self, job: Job, path: Path, tolerance: float) -> str:
        """Optional: the first module that differs, for formats that are not made from a program."""


def check_names(names: list[str]) -> None:
    """Refuses a format that does not exist."""
    for name in names:
        if name not in (WEIGHTS, PROGRAM, *FORMATS):
            raise RunError(f"no format {name!r}; {known_names(name, (WEIGHTS, PROGRAM, *FORMATS))}")


def need(module: str, extra: str, what: str, *, package: str = "") -> Any:
    """A module that an extra installs. `package`: the one that brings it, if it has another name."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise MissingPackage(f"{what} needs {name}: {installing(extra, package or name)}") from error


def write_format(job: Job, name: str, folder: Path) -> Written:
    """Writes one format, runs it and compares. What a model cannot have, or what was refused, has a reason."""
    form = cast(Format, importlib.import_module(f"surefoot.exports.{FORMATS[name].module}"))
    path = folder / form.NAME
    made = _written(form, job, name, path)
    if made.reason and getattr(form, "FIXES", False) and job.has_free_sizes:
        fixed = _written(form, replace(job, fixed=True), name, path)
        if not fixed.reason:
            return replace(fixed, note=f"{fixed.note}; with free sizes: {made.reason}")
    return made


def _written(form: Format, job: Job, name: str, path: Path) -> Written:
    _remove(path)
    try:
        with refusals_of(path):
            note = form.write(job, path)
            sync_folder(path.parent)
        own = getattr(form, "difference", None)
        found = own(job, path) if own else compared(form.runner(job, path), job.calls)
    except CannotWrite as error:
        _remove(path)
        return Written(name, reason=str(error))
    tolerance = tolerance_of(job.output, form.TOLERANCE)
    if form.MERGES and has_adapters(job.network):
        tolerance = max(tolerance, merged_tolerance(job.recipe.precision))
    first = "" if found <= tolerance else _first(form, job, path, tolerance)
    return Written(
        name, str(path), _size(path), found, tolerance, form.COMPARED, first_module=first, note=note,
        program_sizes=FORMATS[name].program_sizes,
    )  # fmt: skip


def tolerance_of(output: Any, usual: float) -> float:
    """The tolerance of a format, wider where outputs are narrow."""
    narrow = any(each.dtype in (torch.bfloat16, torch.float16) for each in tensors(output).values())
    return max(usual, NARROW) if narrow else usual


def compared(run: Runner, calls: list[tuple[Call, Any]]) -> float:
    """The largest difference of any output of any call. Raises `CannotWrite` if the runtime refuses one."""
    return max(_difference(run, call, expected) for call, expected in calls)


def _difference(run: Runner, call: Call, expected: Any) -> float:
    try:
        got = run(call)
    except Exception as error:  # a runtime may refuse an input in any way
        raise CannotWrite(f"its runtime refuses {', '.join(call.texts())}: {why(error)}") from error
    return difference(tuple(tensors(expected).values()), tuple(tensors(got).values()))


def _first(form: Format, job: Job, path: Path, tolerance: float) -> str:
    """The first module that differs: every module's output is made an output, and written in the same format."""
    if hasattr(form, "first_module"):
        return form.first_module(job, path, tolerance)
    tapped = Tapped(job.network)
    beside = path.with_name(f".tapped-{path.name}")
    try:
        outputs = job.call.of(tapped)
        again = Job(job.recipe, tapped, job.call, outputs)
        make_folder(beside.parent)
        form.write(again, beside)
        return first_difference(outputs, form.runner(again, beside)(job.call), tolerance)
    except Exception as error:  # what could not be found out does not hide that it differs
        return f"unknown ({why(error)})"
    finally:
        tapped.close()
        _remove(beside)


def _remove(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _size(path: Path) -> int:
    inside = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(each.stat().st_size for each in inside if each.is_file())
