"""The command `surefoot init`: writes a complete recipe or script to start from, and never overwrites a file."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from surefoot.cli.shared import JsonOption, show
from surefoot.errors import DiskError, RecipeError, known_names

TEMPLATES = ("classifier", "gpt", "seq2seq", "own-loop", "finetune")
SETTINGS_OF = {"finetune": {"model": "a folder, or ORG/NAME of the hub"}}
"""Built-in recipes whose knobs are written to a file too, with the text of those that must be given."""


def init(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="the file to write; default: named after --like")
    ] = None,
    like: Annotated[str, typer.Option("--like", metavar="KIND", help=f"one of {', '.join(TEMPLATES)}")] = "classifier",
    json: JsonOption = False,
) -> None:
    """Writes a complete, commented recipe that trains on the spot, for you to change.

    `--like own-loop` writes a plain PyTorch script for `surefoot watch` instead. `--like finetune` also writes the
    knobs of the built-in recipe `finetune` to a TOML file, for `--config`. No file is overwritten. Examples:
    `surefoot init`, `surefoot init mine.py --like gpt`
    """
    file = write_template(like, name)
    settings = file.with_suffix(".toml") if like in SETTINGS_OF else None
    record = {"file": str(file), "like": like, "next": next_commands(file, like)}
    lines = [f"wrote {file}; next:", *next_commands(file, like)]
    if settings is not None:
        record["settings"] = str(settings)
        train = shlex.join(["surefoot", "train", like, "--config", str(settings), "--run", "runs/tuned"])
        lines[-1] += f"\nwrote {settings}, for a model of transformers; fill in what it asks for; next:"
        lines.append(train)
    text = "\n  ".join(lines)
    show(record, lambda _: Text(text, no_wrap=True, overflow="ignore"), json=json)


def write_template(like: str, name: str | None) -> Path:
    """Writes the template to a file that does not exist yet, and names its recipe after the file.

    If the template has a file of knobs, that is written beside it.
    """
    if like not in TEMPLATES:
        raise RecipeError(f"no template {like!r}; {known_names(like, TEMPLATES)}")
    template = like.replace("-", "_")
    file = Path(name or template)
    if not file.name:
        raise RecipeError(f"{name!r} names no file")
    file = file if file.suffix == ".py" else file.with_name(f"{file.name}.py")
    hidden = find_spec(file.stem) if file.stem.isidentifier() and not file.exists() else None
    if hidden is not None:
        place = f" ({hidden.origin})" if hidden.origin else ""
        raise RecipeError(f"{file} would hide the module {file.stem!r} that Python has{place}; choose another name")
    text = (files("surefoot.cli.templates") / f"{template}.py").read_text(encoding="utf-8")
    settings = file.with_suffix(".toml")
    if like in SETTINGS_OF:
        if file.exists() or file.is_symlink():
            raise _is_there(file)
        write_new(settings, settings_of(like, settings))
    write_new(file, text.replace(f"def {template}(", f"def {function_name(file, template, text)}("))
    return file


def settings_of(recipe: str, file: Path) -> str:
    """The knobs of a built-in recipe as a TOML file."""
    from surefoot.recipe.config import settings_text
    from surefoot.recipe.load import find_function

    command = shlex.join(["surefoot", "train", recipe, "--config", str(file)])
    return settings_text(find_function(recipe), command, SETTINGS_OF[recipe])


def write_new(file: Path, text: str) -> None:
    """Writes a file that does not exist yet."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:  # "x": never an existing file, not even one that appears just now
            out.write(text)
    except FileExistsError:
        raise _is_there(file) from None
    except OSError as error:
        raise DiskError(f"{file} could not be written: {error.strerror}") from error


def _is_there(file: Path) -> RecipeError:
    return RecipeError(f"{file} is already there, and init overwrites nothing; choose another name")


def function_name(file: Path, template: str, text: str) -> str:
    """The file's name, so that reports name the recipe after it; the template's own where that means something else."""
    name = re.sub(r"\W", "_", file.stem)
    taken = iskeyword(name) or not name.isidentifier() or re.search(rf"\b{name}\b", text)
    return template if taken else name


def next_commands(file: Path, like: str) -> list[str]:
    """Three commands to type next."""
    quoted, run = shlex.quote(str(file)), shlex.quote(f"runs/{file.stem}")
    if like == "own-loop":
        return [f"python {quoted}", f"surefoot watch {quoted} --run {run}", f"surefoot report {run}"]
    return [f"surefoot check {quoted}", f"surefoot train {quoted} --run {run}", f"surefoot report {run}"]
