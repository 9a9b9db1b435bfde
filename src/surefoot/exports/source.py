"""What a path stands for after training: a finished run, the folder of an export, or one exported file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from surefoot.checkpoint.consolidate import INDEX
from surefoot.checkpoint.files import Fingerprint
from surefoot.checkpoint.manifest import damage
from surefoot.errors import RunError
from surefoot.recipe.load import load_recipe
from surefoot.recipe.recipe import Recipe
from surefoot.records.export import FILE, Export, read_export
from surefoot.records.run import Run, read_run
from surefoot.training.trust import recipe_of
from surefoot.training.weight_set import PART, SUFFIX
from surefoot.training.weights import verified_weights

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Source:
    """A file with a trained model, and the record that says how it was made, if there is one."""

    path: str
    file: Path
    made: Run | Export | None

    @property
    def is_weights(self) -> bool:
        """Whether the file holds tensors alone. Other formats are programs, which need no code of the model."""
        return self.file.name.endswith((".safetensors", SUFFIX))

    def recipe(self, recipe: str | Recipe | None, knobs: Iterable[str], *, trust_run: bool) -> Recipe:
        """The recipe that made it. Code that the path holds or names is executed only with `trust_run`."""
        words = list(knobs)
        if self.made is not None:
            if words:
                raise RunError(f"{self.path} has knobs of its own; leave out {' '.join(words)}")
            return recipe_of(self.made, self.path, recipe, trust_run=trust_run)
        if recipe is None:
            raise RunError(
                f"{self.path} has no {FILE} that names its recipe; name it and its knobs: RECIPE KNOB=VALUE ..."
            )
        return load_recipe(recipe, words) if isinstance(recipe, str) else recipe


def finished_run(path: str, *, instead: str = "") -> Run:
    """The run of a folder, which must be finished. `instead` says what else can be done."""
    run = read_run(path)
    if run.status != "finished":
        raise RunError(f"{path} is {run.status}, not finished: finish it with the same `surefoot train`{instead}")
    return run


def open_source(path: str) -> Source:
    """Finds the trained model of a path. Weights with a digest are compared with it. Nothing is executed."""
    place = Path(path)
    if (place / "run.json").exists():
        run = finished_run(path)
        return Source(path, verified_weights(run), run)
    if not place.exists():
        raise RunError(f"there is no file or folder {path}; `surefoot train RECIPE` makes a run directory")
    folder, file = (place, _weights_in(place)) if place.is_dir() else (place.parent, place)
    if not file.is_file():
        raise RunError(f"{path} is neither a run nor an export: it holds no run.json and no {WEIGHTS}")
    if PART.fullmatch(file.name):
        raise RunError(f"{file} is one of a set of files; name their folder, {folder}")
    made = read_export(folder)
    whole = _digests(made).get(file.name) if made is not None else None
    if whole is not None and (reason := damage(folder, file.name, whole)) is not None:
        raise RunError(f"cannot use {file}: {reason}; copy it again, or export the run again")
    return Source(path, file, made)


def _weights_in(folder: Path) -> Path:
    """The weights in a folder: one file, or the index of a set."""
    return folder / INDEX if (folder / INDEX).is_file() and not (folder / WEIGHTS).is_file() else folder / WEIGHTS


def _digests(made: Export) -> dict[str, Fingerprint]:
    """The files of an export whose bytes are known, by name."""
    found = {Path(made.weights).name: Fingerprint(made.weights_bytes, made.weights_digest)}
    if made.quantised is not None:
        found[Path(made.quantised.path).name] = Fingerprint(made.quantised.bytes, made.quantised.digest)
    return {name: each for name, each in found.items() if each.xxh3_128}
