"""A fixture for all tests of checks: no script is running."""

import sys

import pytest


@pytest.fixture(autouse=True)
def no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch` reads the source of the running script: that of pytest, unless pytest-xdist runs the tests."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
