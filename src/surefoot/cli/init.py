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


def init(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="the file to write; default: named after --like")
    ] = None,
    like: Annotated[str, typer.Option("--like", metavar="KIND", help=f"one of {', '.join(TEMPLATES)}")] = "classifier",
    json: JsonOption = False,
) -> None:
    """Writes a complete, commented recipe that trains on the spot, for you to change.

    `--like own-loop` writes a plain PyTorch script for `surefoot watch` instead. No file is overwritten. Examples:
    `surefoot init`, `surefoot init mine.py --like gpt`
    """
    file = write_template(like, name)
    record = {"file": str(file), "like": like, "next": next_commands(file, like)}
    text = "\n  ".join([f"wrote {file}; next:", *next_commands(file, like)])
    show(record, lambda _: Text(text, no_wrap=True, overflow="ignore"), json=json)


def write_template(like: str, name: str | None) -> Path:
    """Writes the template to a file that does not exist yet, and names its recipe after the file."""
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
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:  # "x": never an existing file, not even one that appears just now
            out.write(text.replace(f"def {template}(", f"def {function_name(file, template, text)}("))
    except FileExistsError:
        raise RecipeError(f"{file} is already there, and init overwrites nothing; choose another name") from None
    except OSError as error:
        raise DiskError(f"{file} could not be written: {error.strerror}") from error
    return file


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
