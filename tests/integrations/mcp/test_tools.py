"""Which commands the tools run, word by word, and what the server says without its SDK."""

import asyncio
import sys

import pytest

from surefoot.errors import MissingPackage, RecipeError
from surefoot.integrations.mcp.bounds import Bounds, Refused
from surefoot.integrations.mcp.server import serve
from surefoot.integrations.mcp.tools import Tools


class Asked(Exception):
    """The words of the command that would run."""


class Commands:
    async def record(self, words):
        raise Asked(*words)


@pytest.fixture
def words(tmp_path):
    """The words that a tool would run for some arguments."""
    folder = tmp_path.resolve()
    (folder / "--steps").write_text("print(1)\n")
    (folder / "train.py").write_text("print(1)\n")
    (folder / "own.py").write_text("from surefoot import Recipe\ndef own() -> Recipe: ...\n")
    (folder / "run").mkdir()
    tools = Tools(Bounds(folder), Commands())

    def words_of(tool: str, *args, **kwargs) -> list[str]:
        with pytest.raises(Asked) as asked:
            asyncio.run(getattr(tools, tool)(*args, **kwargs))
        return [*asked.value.args]

    return words_of


SLY = ["--sarif", "x", "--trust-run", "--"]


def test_arguments_of_a_script_stand_behind_all_options(words):
    assert words("watch", "train.py", SLY, 9) == ["watch", "./train.py", "--steps=9", "--json", "--", *SLY]
    assert words("look", "train.py", SLY) == ["look", "./train.py", "--json", "--", *SLY]
    assert words("plan", "train.py", SLY, "h100-sxm", 2, 8) == (
        ["plan", "--json", "--on=h100-sxm", "--steps=8", "--", "torchrun", "--nproc-per-node=2", "./train.py", *SLY]
    )
    assert words("watch", "--steps")[:2] == ["watch", "./--steps"]


def test_a_recipe_takes_knobs_only(words):
    assert words("watch", "own.py:own", ["layers=2"]) == ["check", "./own.py:own", "layers=2", "--json"]
    assert words("plan", "gpt", ["layers=2"]) == ["plan", "--json", "gpt", "layers=2"]
    assert words("look", "own.py", ["layers=2"]) == ["look", "./own.py", "layers=2", "--json"]


def test_reading_runs_executes_no_recipe_that_is_not_named(words):
    assert words("explain", "run") == ["explain", "./run", "--json"]
    assert words("compare", "run", "run") == ["compare", "./run", "./run", "--no-replay", "--json"]
    assert words("compare", "run", "run", "own.py") == ["compare", "./run", "./run", "./own.py", "--json"]
    assert words("compare", "train.py", "train.py") == (
        ["watch", "./train.py", "--against=./train.py", "--steps=3", "--json"]
    )


def test_what_is_refused_runs_no_command(tmp_path):
    tools = Tools(Bounds(tmp_path.resolve(), steps=5), Commands())
    (tmp_path / "notes.txt").write_text("text")
    for asked in (
        tools.plan("gpt", ["--html=x"]),
        tools.look("gpt", SLY),
        tools.watch("gpt", steps=6),
        tools.compare("..", ".."),
        tools.explain("/etc"),
    ):
        with pytest.raises(Refused):
            asyncio.run(asked)
    with pytest.raises(RecipeError, match="neither trains"):
        asyncio.run(tools.watch("notes.txt", steps=2))


def test_without_the_sdk_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingPackage, match="pip install mcp"):
        serve(Bounds(tmp_path))
