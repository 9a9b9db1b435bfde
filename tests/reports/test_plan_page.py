"""The page of a plan: the answer first, facts, memory over one step, modules; through the command line."""

import re
import subprocess
import sys

import pytest

from surefoot.reports.figures import smoothed
from surefoot.reports.labels import labels_apart
from surefoot.reports.plan_page import plan_report


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    file = tmp_path_factory.mktemp("plan") / "plan.html"
    command = ["plan", "gpt", "max_steps=1000", "--on", "h100-sxm", "--html", str(file)]
    done = subprocess.run([sys.executable, "-m", "surefoot", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return file.read_text()


def test_the_answer_comes_first(written):
    headline = re.search(r"<h1[^>]*>(.*?)</h1>", written)[1]
    fits, lasts, costs = headline.split("; ")
    assert re.fullmatch(r"gpt fits h100-sxm, [\d.]+ GiB to spare", fits)
    assert re.fullmatch(r"[\d.]+ m?s \(80%: [\d.]+ m?s to [\d.]+ m?s\) on 1 device", lasts)
    assert costs == "less than 0.01 dollars."


def test_repeated_blocks_are_one_module(written):
    assert "blocks.*.attention" in written
    assert "blocks.0" not in written


def test_what_was_assumed_is_said(written):
    assert "assumed: " in written
    assert "Where it goes" in written


def test_a_page_of_a_search_is_refused(tmp_path):
    command = ["plan", "gpt", "--on", "h100-sxm", "--fit", "--html", str(tmp_path / "x.html")]
    done = subprocess.run([sys.executable, "-m", "surefoot", *command], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--html writes one plan" in " ".join(done.stderr.replace("│", " ").split())


def test_a_plan_without_a_device_says_what_it_needs():
    from surefoot.records.plan import Plan

    report = plan_report(Plan("small", "", {}, 10, 4, 1, None))
    assert report.answer == "small needs 0 B."
    assert report.sheets[0].went_as_planned is None


def test_smoothing_keeps_a_constant_and_follows_a_change():
    assert smoothed([2.0] * 50) == pytest.approx([2.0] * 50)
    course = smoothed([0.0] * 100 + [1.0] * 100)
    assert course[99] == 0
    assert 0 < course[103] < course[130] < 1
    assert course[199] > 0.99


def test_labels_of_near_points_do_not_overlap():
    apart = labels_apart({"heavy": (0.5, 9.0, 3.0), "other": (0.5, 9.0, 2.0), "third": (0.51, 9.0, 1.0)})
    assert apart["heavy"] == "bottom center"
    assert apart["other"] == "top center"
    assert len(set(apart.values())) == len(apart)
    crowd = labels_apart({f"module-{number}": (0.5, 9.0, float(number)) for number in range(30)})
    assert len(crowd) < 30
    assert "module-29" in crowd
