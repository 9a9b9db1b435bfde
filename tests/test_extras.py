"""Hints for packages that are not installed: made in one place, of packages that pyproject.toml names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib

import surefoot
from surefoot import errors

PACKAGE = Path(surefoot.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text())["project"]
TEXTS = [PACKAGE.parent.parent / "README.md", *(PACKAGE.parent.parent / "docs" / "guide").glob("*.md")]
BROUGHT = {"lm_eval": ("pyyaml",)}
"""Packages that a package of an extra brings along."""


def calls() -> Iterator[tuple[str, str]]:
    """The extra and each package of every call of `installing` that writes them out."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "installing":
                words = [word.value for word in node.args if isinstance(word, ast.Constant)]
                yield from ((words[0], package) for package in words[1:])


def test_a_hint_names_packages_that_exist_and_after_a_release_the_extra(monkeypatch):
    assert errors.installing("finetune", "peft", "bitsandbytes") == "pip install peft bitsandbytes"
    monkeypatch.setattr(errors, "ON_AN_INDEX", True)
    assert errors.installing("finetune", "peft", "bitsandbytes") == "pip install 'surefoot[finetune]'"


def test_the_packages_of_hints_are_those_of_their_extra():
    found = set(calls())
    assert ("report", "plotly") in found
    for extra, package in found:
        asked = [each.partition(">")[0] for each in PROJECT["optional-dependencies"][extra]]
        assert package in [*asked, *(brought for each in asked for brought in BROUGHT.get(each, ()))]


@pytest.mark.skipif(errors.ON_AN_INDEX, reason="a package index has surefoot")
def test_nothing_asks_for_a_surefoot_that_no_index_has():
    texts = [file for file in (*PACKAGE.rglob("*.py"), *TEXTS) if file.name != "errors.py"]
    assert not [str(file) for file in texts if "surefoot[" in file.read_text(encoding="utf-8")]
