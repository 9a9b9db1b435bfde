"""The matrix of torch versions: what counts as ok, as stated and as failed, and how rows become a table."""

import importlib
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def matrix(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("torch_matrix")


@pytest.fixture
def typed(matrix, tmp_path):
    """A function that makes `surefoot` a script, and fills one cell with what it does."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    here = matrix.Environment(tmp_path, sys.executable)

    def cell(script: str) -> dict[str, str]:
        program = tmp_path / "venv" / "bin" / "surefoot"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return matrix._cell("export", lambda here: here.surefoot("export", "runs/first"), here)

    return cell


def test_a_command_that_works_is_ok(typed):
    assert typed("echo $2") == {"is": "ok", "said": "runs/first\n"}


def test_a_refusal_that_names_the_torch_it_needs_is_a_stated_sentence(typed):
    said = "a plan of tp needs torch 2.10 or newer; torch 2.8.0 is installed"
    assert typed(f"echo 'error: {said}' >&2; exit 2") == {"is": "stated", "said": said}


@pytest.mark.parametrize(
    "script",
    [
        "echo 'error: no such knob' >&2; exit 2",
        "echo Traceback >&2; echo 'KeyError: it needs torch 2.10' >&2; exit 1",
        "echo Traceback >&2; echo 'KeyError: it needs torch 2.10' >&2; exit 2",
        "exit 1",
        "kill -9 $$",
    ],
)
def test_anything_else_is_a_failure(typed, script: str):
    assert typed(script)["is"] == "failed"


def test_nothing_of_the_checkout_is_imported_there(typed, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "src")
    assert typed("echo [$PYTHONPATH]")["said"] == "[]\n"


def test_rows_become_a_table_with_each_sentence_once(matrix):
    ok, other = {"is": "ok", "said": "10 bytes"}, {"is": "ok", "said": "11 bytes"}
    stated = {"is": "stated", "said": "it needs torch 2.10 or newer"}
    cells = dict.fromkeys(matrix.CELLS, ok)
    rows = {"2.8.0": {"cells": cells | {"plan TP": stated, "export": stated}}, "2.15.0": {"cells": cells}}
    *_, old, new, _, note = matrix.table(rows).splitlines()
    assert old.count("stated 1") == 2
    assert new.count("ok") == len(cells)
    assert new.endswith("| - |")  # no quick tier
    assert note == "1. it needs torch 2.10 or newer"
    assert matrix.differing(rows) == []
    rows["2.15.0"]["cells"] = cells | {"plan DDP": other}
    assert matrix.differing(rows) == ["plan DDP: 10 bytes, 11 bytes"]
