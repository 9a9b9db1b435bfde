"""Runs small programs that raise, and explains what they raise."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot.debug.errors.explain import explain
from surefoot.records.explanation import Explanation

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"


@pytest.fixture
def explained(tmp_path: Path) -> Callable[[str], Explanation | None]:
    """`explained(source)`: the explanation of what a program raises. Its first line is line 4."""

    def run(source: str) -> Explanation | None:
        file = tmp_path / "program.py"
        file.write_text(HEAD + source)
        try:
            runpy.run_path(str(file), run_name="__main__")
        except Exception as error:
            return explain(error)
        raise AssertionError("the program did not raise")

    return run


def lines_of(found: Explanation) -> set[int]:
    """All lines that an explanation names."""
    raised, cause = found.raised, found.cause
    places = [place for each in raised.met for place in each.made]
    places += [*(cause.places if cause else ()), *(raised.module.made if raised.module else ())]
    return {each.line for each in places}
