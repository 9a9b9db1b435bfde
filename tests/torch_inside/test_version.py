"""An older torch, or none, is refused in one line, and before it is imported."""

import os
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path

import pytest
import tomllib

import surefoot
from surefoot.errors import MissingPackage
from surefoot.torch_inside.version import OLDEST, require_torch

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def found(monkeypatch):
    """A function that makes pip's notes name another version."""
    require_torch.cache_clear()
    yield lambda version: monkeypatch.setattr(metadata, "version", lambda name: version)
    require_torch.cache_clear()


@pytest.mark.parametrize("version", ["2.7.1", "2.6.0+cu126", "1.13.1", "2.7.0.dev20250101"])
def test_an_older_torch_is_refused(found, version: str):
    found(version)
    with pytest.raises(MissingPackage, match=r"needs torch 2\.8 or newer, and torch .* is installed: pip install"):
        require_torch()


@pytest.mark.parametrize("version", ["2.8.0", "2.10.0", "2.13.0", "2.13.0a0+git1234", "2.14.0+cu130", "2.15.3"])
def test_a_torch_that_was_tried_is_taken(found, version: str):
    found(version)
    require_torch()


@pytest.mark.parametrize("version", ["2.9.1", "2.11.0", "2.16.0.dev20261101", "3.0.0"])
def test_one_that_nobody_has_tried_is_taken_with_one_line_of_warning(found, version: str):
    found(version)
    with pytest.warns(
        UserWarning, match=f"not tried with torch {version}, only with 2.8.0, .*`surefoot doctor`"
    ) as seen:
        require_torch()
    (shown,) = seen
    text = warnings.formatwarning(shown.message, shown.category, shown.filename, shown.lineno)
    assert len(text.splitlines()) == 1


def test_the_public_words_and_a_watched_loop_refuse_it(found, monkeypatch):
    found("2.4.0")
    monkeypatch.delitem(vars(surefoot), "plan", raising=False)
    with pytest.raises(MissingPackage):
        _ = surefoot.plan
    with pytest.raises(MissingPackage), surefoot.watch():
        pass
    assert surefoot.Tally() is not None  # records need no torch


def test_the_command_line_says_it_in_one_line(tmp_path):
    notes = tmp_path / "torch-2.4.0.dist-info" / "METADATA"
    notes.parent.mkdir()
    notes.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0\n")
    (tmp_path / "torch.py").write_text("raise ImportError('this torch was imported')\n")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    for words in (("check", "gpt"), ("watch", str(ROOT / "examples" / "house_prices.py")), ("export", "runs/none")):
        done = subprocess.run(
            [sys.executable, "-m", "surefoot", *words],
            env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: surefoot needs torch 2.8 or newer, and torch 2.4.0 is installed")


def test_a_missing_torch_is_said(found, monkeypatch):
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    require_torch()  # built from source: there, without pip's notes
    require_torch.cache_clear()
    monkeypatch.setattr("surefoot.torch_inside.version.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="not installed: pip install"):
        require_torch()


def test_pyproject_asks_for_the_same_torch():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"torch>={OLDEST[0]}.{OLDEST[1]}" in asked
