"""The text and the picture of a range test, from a made-up record."""

import dataclasses
import math
import sys

import pytest

from surefoot.errors import MissingPackage
from surefoot.records.lr_range import LrPoint, LrRange
from surefoot.reports.braille import curve
from surefoot.reports.chart import figure_for, save_chart
from surefoot.reports.console import as_text
from surefoot.reports.lr_range import lr_range_text


def point(power: float) -> LrPoint:
    loss = 5 - 3 / (1 + math.exp(-4 * (power + 3))) + math.exp(4 * (power + 0.5))
    return LrPoint(10**power, loss, loss)


FOUND = LrRange(
    recipe="gpt",
    knobs={"layers": 4, "lr": 0.001},
    first_lr=1e-7,
    last_lr=10.0,
    steps=100,
    samples=8,
    micro_batches=4,
    points=tuple(point(-7 + index * 8 / 99) for index in range(84)),
    ended="diverged",
    own_lr=1e-3,
    steepest_lr=1.1e-3,
    edge_lr=0.35,
)


def test_lr_range(golden):
    flat = tuple(LrPoint(each.lr, 5.0, 5.0) for each in FOUND.points)
    nothing = dataclasses.replace(
        FOUND, points=flat, ended="at the last rate", steepest_lr=None, edge_lr=None, micro_batches=1
    )
    beyond = dataclasses.replace(FOUND, own_lr=0.5, ended="not finite")
    golden("lr_range.txt", "\n".join(as_text(lr_range_text(found)) for found in (FOUND, nothing, beyond)))


def test_a_curve_in_braille_goes_from_corner_to_corner():
    assert curve([0, 1], [0, 1], width=2, height=1) == ["⡠⠊"]
    assert curve([0, 1], [1, 0], width=2, height=1) == ["⠑⢄"]
    assert curve([0, 1, 2], [7, 7, 7], width=3, height=2) == ["   ", "⣀⣀⣀"]
    assert curve([0], [0], width=1, height=1) == ["⡀"]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_curve_can_be_kept_as_a_picture(suffix: str, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"curve.{suffix}"
    save_chart(FOUND, figure_for(path), path)
    assert path.read_bytes()[:5] == {"svg": b"<?xml", "png": b"\x89PNG\r"}[suffix]


def test_a_picture_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackage, match="pip install matplotlib"):
        figure_for(tmp_path / "curve.svg")
