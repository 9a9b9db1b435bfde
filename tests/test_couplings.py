"""Names of surefoot's own modules that stand in strings: each must name what is there."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import surefoot
from surefoot.checks.engine import functions
from surefoot.checks.engine.functions import UNHEARD
from surefoot.events.failsafe import Failsafe
from surefoot.events.rank_notes import told
from surefoot.recipe.builtin import RECIPES, builtin_recipes
from surefoot.source.owners import DRIVING, OWN
from surefoot.training.guards.beats import WAITS

ROOT = Path(surefoot.__file__).parent


@pytest.mark.parametrize("name", [*DRIVING, *UNHEARD, RECIPES])
def test_a_module_that_a_string_names_is_there(name: str):
    assert importlib.util.find_spec(name.rstrip("."))


def test_every_watched_loop_of_surefoots_own_is_known_as_such():
    """Lines of a file that both makes steps and watches them are not shown as the user's."""
    found = []
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"= Step\(", text) and re.search(r"\b(Watcher|RunThrottle)\(", text):
            found.append(".".join(("surefoot", *path.relative_to(ROOT).with_suffix("").parts)))
    assert len(found) >= 2
    assert all(module.startswith(DRIVING) for module in found), found


def test_what_looks_is_not_heard():
    assert functions.__name__.startswith(UNHEARD)
    assert told.__module__.startswith(UNHEARD)


def test_a_failure_is_placed_inside_of_the_package(monkeypatch: pytest.MonkeyPatch):
    assert Path(OWN) == ROOT
    failsafe = Failsafe(on=True)
    monkeypatch.delenv("SUREFOOT_RAISE")
    with pytest.warns(RuntimeWarning, match="surefoot stopped checking"):
        failsafe.callback(surefoot.datasheet)("nothing")
    assert "hardware/datasheet.py, line" in failsafe.failure


def test_where_ranks_wait_is_told_by_files_and_functions_that_exist():
    own = [(file, function) for file, function in WAITS if file != "graph.py"]
    assert len(own) == 2
    for file, function in own:
        path = ROOT / file.removeprefix("surefoot/")
        assert f"def {function}(" in path.read_text(encoding="utf-8")


def test_the_reference_recipes_are_found():
    assert builtin_recipes() == tuple(
        sorted(path.stem for path in (ROOT / "recipes").glob("*.py") if path.stem != "__init__")
    )
    assert len(builtin_recipes()) >= 7
