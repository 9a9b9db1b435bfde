"""Makes the reference: commands from typer's own help, Python and recipes from signatures and docstrings."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import MISSING
from pathlib import Path

import griffe


def write_reference(to: Path, source: Path) -> None:
    """All pages. Code is read and not run, except for what imports no torch: the command line, and the settings."""
    to.mkdir(parents=True)
    sys.path.insert(0, str(source))
    pages = {**dict(_commands()), "python": _python(source), "recipes": _recipes(source)}
    for name, text in pages.items():
        (to / f"{name}.md").write_text(text, encoding="utf-8")
    (to / "index.md").write_text(_index(pages), encoding="utf-8")


def _index(pages: dict[str, str]) -> str:
    """The pages in the groups of `surefoot --help`; first what is no command."""
    from surefoot.cli.groups import GROUPS

    of_commands = {name for names in GROUPS.values() for name in names}
    lines = ["# Reference", "", "Made from the code of this version.", ""]
    for group, names in {"": [name for name in pages if name not in of_commands], **GROUPS}.items():
        lines += [f"## {group}", ""] if group else []
        lines += ["| page | what it is |", "|---|---|"]
        for name in names:
            title, about = pages[name].removeprefix("# ").split("\n\n")[:2]
            lines.append(f"| [{title}]({name}.md) | {_first_sentence(about)} |")
        lines.append("")
    return "\n".join(lines)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.?!])\s", " ".join(text.split()))[0]


def _commands() -> Iterator[tuple[str, str]]:
    """A page for each command, as typer writes it."""
    import typer
    from typer.cli import get_docs_for_click

    from surefoot.cli.main import app

    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="surefoot")
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = typer.Context(command, parent=context, info_name=name)
        text = get_docs_for_click(obj=command, ctx=inner, name=name, call_prefix="surefoot", title=f"surefoot {name}")
        yield name, text.rstrip() + "\n"


def _module(file: Path) -> griffe.Module:
    return griffe.visit(file.stem, filepath=file, code=file.read_text(encoding="utf-8"))


def _python(source: Path) -> str:
    """Every public word of `import surefoot`."""
    from surefoot import _HOMES

    homes = {**_HOMES, "watch": "surefoot.watch"}
    lines = ["# Python", "", "Every public word of `import surefoot`. A word is loaded when it is first used.", ""]
    found = {name: _module(source / f"{home.replace('.', '/')}.py")[name] for name, home in homes.items()}
    functions = {name: each for name, each in found.items() if each.is_function}
    for title, group in (("Functions", functions), ("Classes", {k: v for k, v in found.items() if k not in functions})):
        lines += [f"## {title}", ""]
        for name in sorted(group):
            lines += _word(name, group[name])
    return "\n".join(lines)


def _word(name: str, found: griffe.Object | griffe.Alias) -> Iterator[str]:
    yield from (f"### {name}", "", "```python", _signature(name, found), "```", "", _doc(found), "")
    if found.is_class:
        yield from _fields(found)
        yield from _methods(found)


def _doc(found: griffe.Object | griffe.Alias) -> str:
    return found.docstring.value.strip() if found.docstring else ""


def _signature(name: str, found: griffe.Object | griffe.Alias, *, bound: bool = False) -> str:
    """As it is written, on one line or with one parameter on each."""
    if found.is_class:
        return f"class surefoot.{name}"
    parameters = [each for each in found.parameters if not (bound and each.name in ("self", "cls"))]
    words = list(_parameters(parameters))
    result = f" -> {found.returns}" if found.returns else ""
    short = f"{name}({', '.join(words)}){result}"
    return short if len(short) <= 88 else f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){result}"


def _parameters(parameters: Iterable[griffe.Parameter]) -> Iterator[str]:
    marked = False
    for each in parameters:
        if each.kind is griffe.ParameterKind.keyword_only and not marked:
            marked = True
            yield "*"
        star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(each.kind, "")
        default = f" = {each.default}" if each.default is not None and not star else ""
        yield f"{star}{each.name}{f': {each.annotation}' if each.annotation else ''}{default}"


def _fields(found: griffe.Object | griffe.Alias) -> Iterator[str]:
    """The fields of a data class with their types, defaults and what stands below them."""
    fields = [each for each in found.attributes.values() if not each.name.startswith("_") and not each.is_alias]
    fields = [each for each in fields if each.annotation is not None and "property" not in each.labels]
    if fields:
        yield from ("| field | type | default | |", "|---|---|---|---|")
    for each in fields:
        default, allowed, about = str(each.value or ""), "", _doc(each)
        if default.startswith(("setting(", "field(metadata=declared(")):
            default, allowed, about = _declared(each.name)
        default = f"`{_cell(default)}`" if default else ""
        yield f"| `{each.name}` | `{_cell(str(each.annotation))}`{allowed} | {default} | {_cell(about)} |"
    if fields:
        yield ""


def _declared(name: str) -> tuple[str, str, str]:
    """The default of a setting of a recipe, the values that are allowed, and what it does."""
    from surefoot.recipe.knobs import describe
    from surefoot.recipe.recipe import SETTINGS

    declared = SETTINGS[name]
    one_of = describe(declared.hint) if "Literal" in str(declared.hint) else ""
    allowed = f", {declared.range or one_of}" if declared.range or one_of else ""
    return "" if declared.default is MISSING else repr(declared.default), allowed, declared.about


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _methods(found: griffe.Object | griffe.Alias) -> Iterator[str]:
    properties = [each for each in found.attributes.values() if "property" in each.labels]
    for each in (*properties, *found.functions.values()):
        if each.name.startswith("_") or not _doc(each):
            continue
        shown = f"{each.name}: {each.annotation}" if each.is_attribute else _signature(each.name, each, bound=True)
        yield from ("```python", shown, "```", "", _doc(each), "")


def _recipes(source: Path) -> str:
    """The built-in recipes and their knobs."""
    lines = ["# Recipes", "", "The recipes that come with surefoot, and their knobs with defaults.", ""]
    for module in map(_module, sorted((source / "surefoot" / "recipes").glob("*.py"))):
        for function in module.functions.values():
            if str(function.returns) == "Recipe" and not function.name.startswith("_"):
                lines += [f"## {function.name}", "", _doc(function) or _doc(module), ""]
                lines += ["```python", _signature(function.name, function), "```", ""]
    return "\n".join(lines)
