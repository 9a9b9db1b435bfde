"""init_from: fills a new model with weights from a file, and never drops a tensor without a word.

The source is a `.safetensors` file, a finished run, an export, a Hugging Face folder, or a model of the hub at a
revision. Tensors are matched by name.
Names in the source may have one prefix more or fewer than in the model, as after DDP or with a new head; the report
says so. Each tensor that only one side has, or that has another shape, must be accepted by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from safetensors import SafetensorError, safe_open

from surefoot.checkpoint.consolidate import INDEX
from surefoot.errors import RecipeError
from surefoot.finetuning.hub import WEIGHTS, folder_of
from surefoot.recipe.recipe import Recipe
from surefoot.records.run import read_run
from surefoot.techniques.adapters import is_four_bit
from surefoot.training.converted_weights import ConvertedWeights, converted
from surefoot.training.weight_set import SUFFIX, places_of
from surefoot.training.weights import QUANTIZATION, verified_weights
from surefoot.units import first_of

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SHOWN, _PATTERNS = 6, 50
"""How many names and patterns an error lists. A forged file may have hundreds of thousands."""


@dataclass(frozen=True)
class Other:
    """A tensor that has another shape in the source than in the model."""

    name: str
    there: tuple[int, ...]
    here: tuple[int, ...]

    @property
    def is_resized(self) -> bool:
        """Whether only the number of rows differs, as after a change of the vocabulary."""
        return len(self.there) == len(self.here) > 1 and self.there[1:] == self.here[1:]

    def __str__(self) -> str:
        shapes = f"{self.name} is {list(self.there)} in the file and {list(self.here)} in the model"
        if not self.is_resized:
            return shapes
        rows, common = self.here[0] - self.there[0], min(self.here[0], self.there[0])
        more = f"{abs(rows):,} rows {'more' if rows > 0 else 'fewer'}"
        rest = "the others keep their first values" if rows > 0 else "the file's others are dropped"
        why = ", as with another vocabulary" if len(self.here) == 2 else ""
        return f"{shapes}: {more}{why}; if accepted, {common:,} rows are taken and {rest}"


@dataclass(frozen=True)
class Taken:
    """What a model took from a source, and what it did not."""

    source: str
    taken: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """In the model only. They keep their first values."""
    unexpected: tuple[str, ...] = ()
    """In the source only. They are not used."""
    mismatched: tuple[Other, ...] = ()
    unequal: tuple[str, ...] = ()
    """One tensor in the model under several names, and several different ones in the source."""
    renamed: str = ""
    """How names were changed to match, in words."""
    casts: Mapping[str, int] = field(default_factory=dict)
    """How many tensors were converted, by `float16 to float32`."""

    def differing(self) -> set[str]:
        """The names of all tensors that were not taken as they are."""
        return {*self.missing, *self.unexpected, *self.unequal, *(each.name for each in self.mismatched)}

    def __str__(self) -> str:
        return "\n  ".join(self._lines())

    def _lines(self) -> Iterator[str]:
        of = len(self.taken) + len(self.missing) + len(self.mismatched) + len(self.unequal)
        yield f"{len(self.taken):,} of the model's {of:,} tensors taken from {self.source}"
        if self.renamed:
            yield self.renamed
        for change, count in self.casts.items():
            yield f"converted from {change}: {count:,} tensors"
        for title, names in (
            ("only in the model, which keeps its first values", self.missing),
            ("only in the file, not used", self.unexpected),
            ("one tensor in the model, different ones in the file", self.unequal),
            ("of another shape", self.mismatched),
        ):
            if names:
                yield f"{title}, {len(names):,}: {_listed(map(str, names))}"


def with_first_weights(recipe: Recipe, reports: list[Taken] | None = None) -> Recipe:
    """The recipe, with a model that begins with the weights of `init_from`. `reports` receives what was taken."""
    if recipe.init_from is None:
        return recipe
    source, build = recipe.init_from, recipe.model

    def model() -> Any:
        built = build()
        whole = torch.nn.ModuleDict(dict(built)) if isinstance(built, Mapping) else built
        if not isinstance(whole, torch.nn.Module):
            return built  # refused where every model is checked
        told = fill(whole, source, accept=recipe.init_accept)
        if reports is not None:
            reports.append(told)
        return built

    return replace(recipe, model=model)


def fill(model: torch.nn.Module, source: str, *, accept: str = "") -> Taken:
    """Copies the source's tensors into the model. Raises, before it copies any, if a difference is not accepted."""
    there: _Source | ConvertedWeights
    named, source = source, folder_of(source, WEIGHTS)
    state = _tensors(model)
    with _Source(source) as there:
        renamed, words = _prefixed(there.shapes, state)
        told = _compared(there, renamed, state, words)
        if told.missing and told.unexpected and (found := converted(model, source)) is not None:
            by_library = _compared(
                found, {name: name for name in found.shapes}, state, "names converted by transformers"
            )
            if len(by_library.taken) > len(told.taken):
                there, renamed, told = found, {name: name for name in found.shapes}, by_library
        _refuse(told, accept)
        casts: dict[str, int] = {}
        with torch.no_grad():
            for name in told.taken:
                if renamed.get(name) is not None:
                    value = there.tensor(renamed[name])
                    state[name].copy_(value)
                    if value.dtype != state[name].dtype:
                        change = f"{_short(value.dtype)} to {_short(state[name].dtype)}"
                        casts[change] = casts.get(change, 0) + 1
            for each in told.mismatched:
                if each.is_resized:
                    _copy_rows(state[each.name], there.tensor(renamed[each.name]))
    return replace(told, source=named, casts=casts)


class Receiver(Protocol):
    """What takes a tensor of a file: a tensor of the model, or a layer that packs its weight."""

    @property
    def shape(self) -> torch.Size: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def copy_(self, value: torch.Tensor, /) -> Any: ...


def _tensors(model: torch.nn.Module) -> dict[str, Receiver]:
    """What a file may fill, by name. A layer in 4 bits stands for its weight and its scales."""
    state: dict[str, Receiver] = {
        name: each for name, each in model.state_dict(keep_vars=True).items() if isinstance(each, torch.Tensor)
    }
    for name, layer in model.named_modules(remove_duplicate=False):
        if is_four_bit(layer):
            for scales in dict(layer.named_buffers(recurse=False)):
                del state[f"{name}.{scales}"]
            state[f"{name}.weight"] = cast(Receiver, layer)
    return state


def _copy_rows(target: Receiver, value: torch.Tensor) -> None:
    """Copies the rows that both have. A layer in 4 bits chooses them itself."""
    if isinstance(target, torch.Tensor):
        rows = min(len(value), len(target))
        target[:rows].copy_(value[:rows])
    else:
        target.copy_(value)


# ---------------------------------------------------------------------------------------- comparing


def _prefixed(shapes: Mapping[str, tuple[int, ...]], state: Mapping[str, Receiver]) -> tuple[dict[str, str], str]:
    """For each name that the source has, as the model spells it, its name in the source; and the change in words.

    Of no change, one prefix less and one prefix more, the one that matches the most names is used.
    """
    less, without = _without_prefix(shapes, state)
    more, extra = _with_prefix(shapes, state)
    if more > less:
        longer = {extra + name if name not in state else name: name for name in shapes}
        return longer, f"names matched with the prefix {extra!r} of the model"
    if less:
        shorter = {name.removeprefix(without): name for name in shapes}
        return shorter, f"names matched without their prefix {without!r} in the file"
    return {name: name for name in shapes}, ""


def _without_prefix(shapes: Collection[str], state: Collection[str]) -> tuple[int, str]:
    """How many more names match without a prefix of the source, and which. One pass: a file may have any number."""
    gains, clashes = Counter[str](), set[str]()
    for name in shapes:
        head, dot, rest = name.partition(".")
        if dot:
            gains[head + dot] += (rest in state) - (name in state)
            if rest in shapes and not rest.startswith(head + dot):
                clashes.add(head + dot)
    return _most(gains, clashes)


def _with_prefix(shapes: Collection[str], state: Collection[str]) -> tuple[int, str]:
    """The same with a prefix of the model."""
    gains, clashes = Counter[str](), set[str]()
    for name in state:
        head, dot, rest = name.partition(".")
        if dot and rest in shapes and rest not in state:
            gains[head + dot] += 1
            if name in shapes:
                clashes.add(head + dot)
    return _most(gains, clashes)


def _most(gains: Counter[str], clashes: set[str]) -> tuple[int, str]:
    """The largest gain and its prefix, the first by name of several. A prefix that makes two names one is left out."""
    found = ((gain, prefix) for prefix, gain in sorted(gains.items()) if gain > 0 and prefix not in clashes)
    return max(found, key=lambda each: each[0], default=(0, ""))


def _compared(
    there: _Source | ConvertedWeights, renamed: Mapping[str, str], state: Mapping[str, Receiver], words: str
) -> Taken:
    groups: dict[int, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    taken, missing, unequal, mismatched = list[str](), list[str](), list[str](), list[Other]()
    for names in groups.values():
        given = [name for name in names if name in renamed]
        here = tuple(state[names[0]].shape)
        if not given:
            missing += names
        elif any(there.shapes[renamed[name]] != here for name in given):
            mismatched += [Other(name, there.shapes[renamed[name]], here) for name in given]
        elif not there.equal([renamed[name] for name in given]):
            unequal += given
        else:
            taken += names
    unexpected = sorted(renamed.keys() - state.keys())
    return Taken(there.path, tuple(taken), tuple(missing), tuple(unexpected), tuple(mismatched), tuple(unequal), words)


def _refuse(told: Taken, accept: str) -> None:
    patterns = [pattern.strip() for pattern in accept.split(",") if pattern.strip()]
    left = sorted(name for name in told.differing() if not any(fnmatchcase(name, each) for each in patterns))
    if left:
        raise RecipeError(
            f"init_from does not fit the model: {told}\n"
            f"mend the file or the model, or accept what differs by name or pattern: init_accept='{_accepting(left)}'"
        )
    if not told.taken and not told.mismatched:
        raise RecipeError(f"init_from: no tensor of {told.source} has the name of one in the model; check the file")


def _accepting(names: list[str]) -> str:
    """Names for `init_accept`; many of one module as a pattern."""
    if len(names) <= _SHOWN:
        return ",".join(names)
    patterns = sorted({f"{name.partition('.')[0]}.*" if "." in name else name for name in names})
    return ",".join([*patterns[:_PATTERNS], *(["..."] if len(patterns) > _PATTERNS else [])])


def _listed(texts: Iterable[str]) -> str:
    return first_of(list(texts), _SHOWN)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---------------------------------------------------------------------------------------- reading


class _Source:
    """The tensors of one safetensors file, or of the files of a folder. Nothing in them is executed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._open: list[Any] = []
        self._in: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def __enter__(self) -> _Source:
        for file in _files(Path(self.path)):
            try:
                opened: Any = safe_open(file, framework="pt", device="cpu")
                _refuse_quantised(file, opened.metadata())
                for name in opened.keys():  # noqa: SIM118  it is not a dict
                    self._in[name] = opened
                    self.shapes[name] = tuple(opened.get_slice(name).get_shape())
            except (SafetensorError, OSError) as error:
                raise RecipeError(
                    f"init_from: {file} is not a whole safetensors file ({error}); copy or export it again"
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._in.clear()

    def tensor(self, name: str) -> torch.Tensor:
        try:
            found: torch.Tensor = self._in[name].get_tensor(name)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise RecipeError(f"init_from: {name} of {self.path} cannot be read: {error}") from error
        return found

    def equal(self, names: list[str]) -> bool:
        """Whether these tensors, one in the model, hold the same values."""
        first = self.tensor(names[0]) if len(names) > 1 else None
        return first is None or all(torch.equal(first, self.tensor(name)) for name in names[1:])


def _files(path: Path) -> list[Path]:
    """The safetensors files that a path stands for. A run's weights are compared with their digest first."""
    if path.is_file():
        if path.suffix in PICKLES:
            raise RecipeError(_is_pickle(path))
        if path.name.endswith(SUFFIX):
            return sorted(set(places_of(path, RecipeError, before="init_from: ").values()))
        return [path]
    if not path.is_dir():
        raise RecipeError(f"init_from: there is no file or folder {path}")
    if (path / "run.json").exists():
        run = read_run(path)
        if run.status != "finished":
            raise RecipeError(
                f"init_from: the run {path} is {run.status}, so it has no weights yet; "
                f"`surefoot export {path} --weights` writes those of its newest checkpoint"
            )
        return [verified_weights(run)]
    if (path / INDEX).is_file():
        return sorted(set(places_of(path / INDEX, RecipeError, before="init_from: ").values()))
    found = sorted(path.glob("*.safetensors"))
    if (path / "model.safetensors").is_file():
        return [path / "model.safetensors"]
    if len(found) == 1 and found[0].name != "adapter_model.safetensors":
        return found
    pickles = sorted(each for each in path.iterdir() if each.suffix in PICKLES)
    if pickles and not found:
        raise RecipeError(_is_pickle(pickles[0]))
    held = f"it holds {_listed(each.name for each in found)}" if found else "it holds no .safetensors file"
    raise RecipeError(f"init_from: {path} has no model.safetensors; {held}; name the file itself")


def _refuse_quantised(file: Path, about: Mapping[str, str] | None) -> None:
    if kind := (about or {}).get(QUANTIZATION):
        raise RecipeError(
            f"init_from: {file} is quantised ({kind}), which cannot be trained; name the weights that it was made from"
        )


def _is_pickle(path: Path) -> str:
    return (
        f"init_from: {path} may be a pickle, which can execute code, so surefoot does not read it; write its tensors "
        "with safetensors.torch.save_file in a process that you trust"
    )
