"""What the commands share: arguments and options, loading a recipe, printing a record."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.completion import complete_knob, complete_recipe
from surefoot.errors import DiskError, RunError, SurefootError
from surefoot.plain_files import refusals_of
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole

if TYPE_CHECKING:
    from surefoot.recipe.recipe import Recipe
    from surefoot.records.finding import Findings
    from surefoot.records.out_of_memory import OutOfMemory

RECIPE = typer.Argument(
    metavar="RECIPE",
    autocompletion=complete_recipe,
    help="a built-in name, file.py, file.py:function or module:function",
)
RecipeArgument = Annotated[str, RECIPE]
RecipeOfRunArgument = Annotated[
    str | None, typer.Argument(metavar="RECIPE", help="the recipe that made it, unless it is built in")
]
KnobsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KNOB=VALUE",
        autocompletion=complete_knob,
        help="knobs of the recipe, such as layers=24 precision=bf16-mixed",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE.toml", help="read knobs from this file; those given here overrule it"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print the record as JSON instead of text")]
AllowOption = Annotated[
    list[str] | None, typer.Option("--allow", metavar="CHECK", help="silence one check; may be repeated")
]
SarifOption = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0 for editors and CI")
]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="the most memory for tensors, such as 2GiB; the operation that would exceed it raises "
        "torch.OutOfMemoryError, and surefoot explains what held the memory",
    ),
]
TrustOption = Annotated[
    bool, typer.Option("--trust-run", help="execute the recipe that the run holds or names: code of whoever made it")
]


def within(low: float, high: float = 1e30, *, above: bool = False) -> Callable[[Any], Any]:
    """A callback that restricts an option to a range, and refuses NaN and infinity."""
    from surefoot.recipe.ranges import Range

    wanted = Range(float, low, high, above=above)

    def check(value: Any) -> Any:
        try:
            return None if value is None else wanted.check("", value)
        except SurefootError as error:
            raise typer.BadParameter(str(error).removeprefix("=")) from None

    return check


@contextmanager
def agreeing(*sources: object) -> Iterator[None]:
    """Around computations on records read from disk: numbers that contradict each other give a one-line error."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError) as error:
        if os.environ.get("SUREFOOT_RAISE") == "1":
            raise
        named = ", ".join(map(str, sources))
        said = f"the records of {named} contradict each other: {type(error).__name__}: {error}"
        raise RunError(f"{said}; was one of them changed? SUREFOOT_RAISE=1 shows the whole traceback") from error


def limit_bytes(text: str | None) -> int | None:
    """The bytes of `--memory-limit`."""
    from surefoot.recipe.recipe import UNITS, bytes_of

    if text is None:
        return None
    found = bytes_of(text)
    if not found:
        raise typer.BadParameter(
            f"{text!r} is no size; write a number and a unit, such as 2GiB; units: {', '.join(UNITS)}",
            param_hint="--memory-limit",
        )
    return found


def load(target: str, knobs: list[str] | None) -> Recipe:
    """The recipe that a command names. A model of the hub is said on stderr: commit, licence, size."""
    from surefoot.recipe.load import load_recipe

    recipe = load_recipe(target, knobs or ())
    from surefoot.finetuning.hub import said  # needs torch, and loading says so in a line if it is too old

    if rank() == 0 and (told := said(recipe.init_from)):
        typer.echo(told, err=True)
    return recipe


def with_file(target: str, knobs: list[str] | None, config: Path | None) -> list[str]:
    """The knobs of the command line and those of the file that `--config` names."""
    if config is None:
        return list(knobs or ())
    from surefoot.recipe.config import with_config

    return with_config(target, knobs or (), config)


def load_other(target: str, knobs: list[str] | None, others: str) -> Recipe:
    """The same recipe with some knobs changed: `--against "layers=12 width=512"`."""
    words = {word.partition("=")[0]: word for word in (*(knobs or ()), *others.split())}
    return load(target, list(words.values()))


def devices(names: str | None) -> str | None:
    """A callback that says on stderr what names of devices are taken for, if they may mean several."""
    from surefoot.hardware import names_said

    for name in (names or "").split(","):
        if rank() == 0 and (said := names_said(name)):
            typer.echo(said, err=True)
    return names


def rank() -> int:
    """The rank of this process under torchrun; only rank 0 prints."""
    return int(os.environ.get("RANK", "0"))


def rank_count() -> int:
    """The number of processes that torchrun started; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def goes_with(flag: str, given: bool, options: dict[str, Any]) -> None:
    """Raises if an option is given without the flag that it needs."""
    for name, value in options.items():
        if value is not None and not given:
            raise typer.BadParameter(f"{name} needs {flag}")


def show(record: Any, text: Any, *, json: bool) -> None:
    """Prints a record, as text or as JSON. Only rank 0 prints."""
    if rank() > 0:
        return
    if json:
        print(to_json(record))
    else:
        PlainConsole().print(text(record))


def keep_known(error: Exception, known: OutOfMemory) -> None:
    """Keeps what is known of an out-of-memory error: the error carries it, and its run directory holds it."""
    from surefoot.debug.memory.out_of_memory import attach
    from surefoot.records.out_of_memory import write_out_of_memory

    attach(error, known)
    if known.run:
        with suppress(DiskError):
            write_out_of_memory(Path(known.run), known)


def keep_sarif(findings: Findings, file: Path | None, *, of: str = "") -> None:
    """Writes findings of the script or recipe file `of` as a SARIF file, if `--sarif` names one. Only rank 0 writes."""
    from surefoot.reports.sarif import sarif_text

    if file is not None and rank() == 0:
        with refusals_of(file):
            file.write_text(sarif_text(findings, file=of) + "\n", encoding="utf-8")
