"""The report as a page: its figures are those of the records, and a browser shows it without asking anybody."""

import json
import math
import os
import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from surefoot.errors import MissingPackage, RunError
from surefoot.records.codec import to_json
from surefoot.records.event import Event, append_event
from surefoot.records.log import append_row
from surefoot.records.plan import Plan, write_plan
from surefoot.records.profile import write_profile
from surefoot.records.run import Run, write_run
from surefoot.reports.figures import (
    curve_figures,
    memory_tree,
    operator_figure,
    roofline_figure,
    time_tree,
    timeline_figure,
    titled_figures,
)
from surefoot.reports.gather import POINTS, report_of, thinned
from surefoot.reports.page import page, write_page
from surefoot.reports.pictures import write_pictures
from tests.reports.pages import MIB, PROFILE, STEADY, TOKENS, browse, in_a_browser
from tests.rows import log_row


@pytest.fixture
def run_folder(tmp_path: Path):
    """`run_folder("a", steps=100)`: a run directory with all that a report can show."""

    def make(name: str, *, steps: int) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        run = Run(
            str(folder), "gpt", "the next byte", "gpt", {"layers": 2, "lr": 0.001}, "finished", 1_000, "cpu", "2.13.0",
            steps=steps, tokens=8192 * steps, seconds=0.9 * steps, first_loss=5.0, last_loss=2.0,
            environment={"python": "3.11"}, token_ledger=TOKENS,
        )  # fmt: skip
        write_run(run)
        with run.log.open("w") as file:
            for step in range(1, steps + 1):
                loss = 2 + 3 * math.exp(-step / 100) + 0.2 * math.sin(step) + (7.0 if step == steps // 3 else 0.0)
                append_row(file, replace(log_row(step, loss=loss), memory_bytes=10**9))
        append_event(run.events, Event(40, "resumed", "start 2, from <step> 40", "2026-11-15 02:03:04"))
        write_plan(folder, Plan("gpt", "", {}, 1_000, 8192, 1, steps, steady=STEADY))
        write_profile(folder, PROFILE)
        run.source.write_text("def gpt(): ...  # </script><b>not markup</b>\n")
        return folder

    return make


def test_figures_are_those_of_the_records(run_folder):
    folder = run_folder("a", steps=100)
    sheet = report_of(folder).sheets[0]
    assert sheet.went_as_planned is True
    assert sheet.first.check == "waiting-for-data"
    curves = curve_figures([sheet])
    assert curves["loss"]["data"][0]["y"][0] == pytest.approx(5 - 3 + 3 * math.exp(-0.01) + 0.2 * math.sin(1))
    assert curves["throughput"]["data"][0]["y"][0] == pytest.approx(8192 / 0.9)
    assert (len(curves["loss"]["data"]), len(curves["learning rate"]["data"])) == (2, 1)  # only noise is smoothed
    stacked = timeline_figure(sheet)
    assert [sum(at) for at in zip(*(trace["y"] for trace in stacked["data"]), strict=True)][2] == 8 * MIB
    assert stacked["layout"]["annotations"][0]["text"] == "peak 8.00 MiB<br>loss in head"
    memory, time = memory_tree(sheet)["data"][0], time_tree(sheet)["data"][0]
    assert dict(zip(memory["ids"], memory["values"], strict=True)) == {
        "step": 8 * MIB, "head": 4 * MIB, "layers": 4 * MIB, "layers.0": 4 * MIB,
    }  # fmt: skip
    assert dict(zip(time["ids"], time["values"], strict=True))["step"] == pytest.approx(1.0)
    points = roofline_figure(sheet)["data"][1]
    assert points["x"] == pytest.approx([80, 4])
    assert points["y"] == pytest.approx([8e9 / 0.6, 4e9 / 0.3])


def test_operators_that_begin_alike_are_told_apart(run_folder):
    sheet = report_of(run_folder("a", steps=3)).sheets[0]
    long = "aten::_scaled_dot_product_flash_attention_for_cpu"
    bars = operator_figure(replace(sheet, operators={long: 2.0, f"{long}_backward": 1.0}))["data"][0]
    assert len(set(bars["y"])) == 2


def test_thinning_keeps_spikes_and_both_ends():
    points = [(step, 100.0 if step == 7_777 else 1.0 / step) for step in range(1, 10_001)]
    kept = thinned(points)
    assert len(kept) <= POINTS
    assert (7_777, 100.0) in kept
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert thinned(points[:10]) == points[:10]


def test_what_stands_in_a_record_is_text_and_no_markup(run_folder):
    written = page(report_of(run_folder("a", steps=5)))
    assert "<b>not markup</b>" not in written
    assert "from &lt;step&gt; 40" in written


@pytest.mark.parametrize("place", ["a pipe", "a device"])
def test_what_is_no_plain_file_in_place_of_the_recipe_does_not_hold_up_a_report(place, run_folder):
    folder = run_folder("a", steps=3)
    (folder / "recipe.py").unlink()
    if place == "a pipe":
        os.mkfifo(folder / "recipe.py")
    else:
        (folder / "recipe.py").symlink_to("/dev/zero")
    with pytest.raises(RunError, match=r"recipe\.py"):
        report_of(folder)


def test_every_figure_of_a_page_is_in_the_record(run_folder):
    """What a page draws is what --json prints as figures; what it says in words is in the report beside them."""
    report = report_of(run_folder("a", steps=50), run_folder("b", steps=20))
    written = page(report)
    drawn = json.loads(re.search(r'id="figures">(.*?)</script>', written, re.DOTALL)[1])
    assert list(drawn.values()) == list(json.loads(to_json(titled_figures(report))).values())
    assert len(drawn) == 6 + 2 * 5
    for sheet in report.sheets:
        assert all(escape(told) in written for told in sheet.facts.values())


@in_a_browser
def test_a_run_of_ten_thousand_steps_opens_offline(run_folder, tmp_path):
    file = tmp_path / "report.html"
    report = report_of(run_folder("first", steps=10_000), run_folder("second", steps=300))
    write_page(report, file)
    assert file.stat().st_size < 6e6
    shown, complaints, asked = browse(file, tmp_path)
    assert complaints == []
    assert asked == []
    assert "first went as planned in all" in shown
    assert "Change first: raise workers" in shown
    assert shown.count('class="main-svg"') >= 2 * 10
    assert "peak 8.00 MiB" in re.search(r'class="annotation-text".*', shown, re.DOTALL)[0]
    assert "layers" in re.search(r'class="treemaplayer".*', shown, re.DOTALL)[0]


@in_a_browser
def test_every_figure_is_a_picture_too(run_folder, tmp_path):
    report = report_of(run_folder("first", steps=50))
    written = write_pictures(report, tmp_path / "pictures")
    assert [file.stem for file in written] == [title.replace(" ", "-") for title in titled_figures(report)]
    assert {"loss.png", "memory-over-one-step.png", "roofline.png"} <= {file.name for file in written}
    for file in written:
        assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert file.stat().st_size > 5_000


def test_without_a_browser_it_is_said_what_is_missing(run_folder, tmp_path, monkeypatch):
    from choreographer.errors import ChromeNotFoundError

    def nowhere(**_):
        raise ChromeNotFoundError

    monkeypatch.setattr("plotly.io.write_images", nowhere)
    with pytest.raises(MissingPackage, match="apt-get install chromium"):
        write_pictures(report_of(run_folder("first", steps=3)), tmp_path / "pictures")


@in_a_browser
def test_the_browser_would_notice(tmp_path):
    """A page that throws, and one that asks for something, are both seen."""
    file = tmp_path / "bad.html"
    file.write_text("<script>throw new Error('broken')</script><img src='http://127.0.0.1:9/x.png'>")
    _, complaints, asked = browse(file, tmp_path)
    assert any("broken" in line for line in complaints)
    assert asked == ["http://127.0.0.1:9/x.png"]
