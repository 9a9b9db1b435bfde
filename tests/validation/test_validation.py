"""surefoot validate: rows with both sides, failures that stop nothing else, sizes that fit, records without places."""

import html
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.errors import RecipeError
from surefoot.recipe.load import load_recipe
from surefoot.records.codec import to_json
from surefoot.records.validation import MEMORY, SECONDS, Machine, Row, Validation, WhatFits, read_validation
from surefoot.reports.console import as_text
from surefoot.reports.validation import validation_text
from surefoot.reports.validation_page import validation_page
from surefoot.validation import row as rows
from surefoot.validation import run
from surefoot.validation.cases import CASES, ON_A_GPU, ON_TWO, Case, cases_for, images_in
from tests.validation.made import GPU, made_up

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("measured_cpu")]

run_child = run.run_child
MACHINE = Machine("a CPU", "cpu", 2, 8 << 30, reached_flops={"fp32": 1e11, "bf16": 5e10})
SLOW = replace(MACHINE, reached_flops={"fp32": 1e4})
BROKEN = """
import os, signal, time
from dataclasses import replace
from surefoot.recipes.regression import regression
from surefoot import Recipe

def raises() -> Recipe:
    def loss(model, batch):
        raise ArithmeticError(f"no loss in {__file__}")
    return replace(regression(), loss=loss)

def killed() -> Recipe:
    return replace(regression(), data=lambda: os.kill(os.getpid(), signal.SIGKILL))

def endless() -> Recipe:
    return replace(regression(), data=lambda: time.sleep(600))
"""


def assert_names_no_place(text: str, *folders: Path) -> None:
    assert socket.gethostname() not in text
    for folder in (Path.cwd(), Path.home(), Path("/tmp"), *folders):
        assert f"{folder}/" not in text


@pytest.fixture(scope="module")
def validated(measured_cpu, tmp_path_factory) -> tuple[Path, object]:
    """`surefoot validate` of two recipes, one of them on two ranks."""
    out = tmp_path_factory.mktemp("validation") / "found"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "MODELS", ())
        names = ["--only", "sentiment", "--only", "gpt-shards"]
        result = CliRunner().invoke(app, ["validate", "--minutes", "0.5", *names, "--out", str(out)])
    return out, result


def test_every_row_has_both_sides(validated):
    out, result = validated
    assert result.exit_code == 0, result.output
    found = read_validation(out / "validation.json")
    assert [(row.name, row.status, row.reason) for row in found.rows] == [
        ("sentiment", "measured", ""),
        ("gpt-shards", "measured", ""),
    ]
    for row in found.rows:
        assert abs(row.error(MEMORY)) < 0.02
        assert abs(row.error("device/requested")) < 0.02
        assert len(row.step_seconds) >= 3
    alone, shards = found.rows
    assert alone.error(SECONDS) is not None
    assert alone.error("seconds/backward") is not None
    assert 0 < alone.mfu < 1
    assert 0 < alone.mfu_planned < 1
    moved = [entry for entry in shards.ledger.entries if entry.account.startswith(("traffic/", "collectives/"))]
    assert {entry.account for entry in moved} >= {"traffic/all-gather", "collectives/reduce-scatter"}
    assert all(entry.agrees for entry in moved)
    assert found.machine.kind == "cpu"
    assert found.machine.reached_flops["fp32"] > 0


def test_the_record_and_the_page_name_no_place(validated):
    out, _ = validated
    for name in ("validation.json", "validation.html"):
        assert_names_no_place((out / name).read_text(), out)


def test_what_is_printed_fits_a_terminal(validated):
    _, result = validated
    assert re.search(r"2 of 2 recipes ran; memory (as planned|off by)", " ".join(result.output.split()))
    assert "validation.html" in result.output


@pytest.fixture
def broken(tmp_path) -> Callable[[str], Case]:
    """A case of a recipe that does not work."""
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    return lambda name: Case(name, f"{file}:{name}", ("",))


def test_a_recipe_that_fails_is_a_row_and_the_others_go_on(broken):
    told = []
    found = run.validate(
        minutes=0.02,
        cases=[broken("raises"), broken("killed"), Case("regression", "regression", ("",))],
        models=("gpt size=gpt2",),
        tell=lambda number, count, row: told.append((number, count, row.name)),
    )
    raised, killed, fine = found.rows
    assert told == [(1, 3, "raises"), (2, 3, "killed"), (3, 3, "regression")]
    assert (raised.status, raised.reason) == ("failed", "ArithmeticError: no loss in broken.py")
    assert (killed.status, killed.reason) == ("failed", "the process was ended by SIGKILL: out of host memory?")
    assert fine.status == "measured"
    assert [row.name for row in found.failed] == ["raises", "killed"]
    assert found.fits == (WhatFits("gpt size=gpt2", "not searched: the time was up"),)


def test_a_recipe_that_does_not_end_is_stopped(broken, monkeypatch):
    monkeypatch.setattr(run, "run_child", lambda task, *rest, limit, **more: run_child(task, *rest, limit=5.0, **more))
    row = run._row(broken("endless"), MACHINE, seconds=1.0, clock=time.monotonic)
    assert (row.status, row.reason) == ("failed", "it took longer than 5 s")
    assert 5 <= row.seconds < 60


def test_a_failure_exits_with_1(tmp_path, monkeypatch):
    row = Row("gpt-fp32", "gpt", (), "failed", "out of memory")
    monkeypatch.setattr(run, "validate", lambda **_: Validation(MACHINE, "2026-11-17", 1.0, (row,)))
    result = CliRunner().invoke(app, ["validate", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 1
    assert '"reason": "out of memory"' in result.output
    assert (tmp_path / "validation.html").exists()


def test_an_unknown_recipe_is_refused(monkeypatch):
    monkeypatch.setattr(run, "run_child", lambda *_, **__: MACHINE)
    with pytest.raises(RecipeError, match=r"'gtp'; known: allocate, step-32-true, "):
        run.validate(only=["gtp"])


def test_a_dozen_recipes_of_every_device_load_in_every_size(tmp_path):
    devices = (("cpu", 2), ("cuda", 1), ("mps", 1), ("cuda", 8))
    assert [len(cases_for(*device)) for device in devices] == [12, 12, 12, 14]
    images = images_in(tmp_path)
    for case in (*CASES, *ON_TWO, *ON_A_GPU):
        for size in range(len(case.sizes)):
            recipe = load_recipe(case.recipe, [*case.words(size), *([images] if case.recipe == "fashion" else [])])
            if case.recipe == "gpt":
                assert recipe.micro_batches(case.ranks) == (4 if case.name == "gpt-accumulate" else 1)


@pytest.mark.parametrize(
    ("machine", "seconds", "size"),
    [(MACHINE, 0.001, 0), (SLOW, 100, 0), (replace(MACHINE, memory_bytes=1 << 14), 1e6, 0), (MACHINE, 1e6, 1)],
    ids=["no time", "too slow", "no memory", "all"],
)
def test_the_largest_size_that_fits_and_is_quick_is_chosen(machine, seconds, size):
    case = Case("cruncher", "cruncher", ("width=16 layers=2", "width=64 layers=2"))
    assert rows.chosen(case, machine, [], seconds=seconds, clock=lambda: 0.0)[0] == size


def test_sizes_for_a_gpu_follow_from_its_memory_and_its_speed():
    case = next(case for case in CASES if case.name == "gpt-fp32")
    short = replace(case, sizes=(case.sizes[0], case.sizes[2]))
    chosen = {seconds: rows.chosen(short, GPU, [], seconds=seconds, clock=lambda: 0.0) for seconds in (0.01, 60.0)}
    assert [size for size, _ in chosen.values()] == [0, 1]
    assert chosen[60.0][1].fit.device == "h100-sxm"
    assert not rows.fits(chosen[60.0][1], replace(GPU, memory_bytes=1 << 30), ranks=1)  # a part of a card


def test_a_recipe_that_is_too_large_is_skipped_and_does_not_fail():
    row = rows.row_of(CASES[0], replace(MACHINE, memory_bytes=100), seconds=5)
    assert row.status == "skipped"
    assert re.fullmatch(r"the smallest size does not fit: it needs [\d.]+ \w+ of 100 B", row.reason)


def test_meters_that_fail_cost_only_their_own_numbers(monkeypatch):
    def booked(*_):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(rows, "booked", booked)
    row = rows.row_of(CASES[0], MACHINE, seconds=5)
    assert (row.status, row.reason) == ("measured", "the meters failed: RuntimeError: no such kernel")
    assert abs(row.error(MEMORY)) < 0.02
    assert row.entry("flops/forward").measured is None


def test_the_text_of_a_validation(golden):
    text = as_text(validation_text(made_up()), width=80)
    assert max(map(len, text.splitlines())) <= 80
    golden("validation.txt", text)


def test_a_validation_can_be_read_again(tmp_path):
    (tmp_path / "x.json").write_text(to_json(made_up()))
    assert read_validation(tmp_path / "x.json") == made_up()


def test_the_page_escapes_and_runs_no_script():
    page = validation_page(made_up())
    assert "&lt;b&gt;CUDA&lt;/b&gt; out of memory" in page
    assert "<script" not in page
    assert "script-src 'none'" in html.unescape(page)
    assert re.findall(r"https?://", page) == []
    assert page.count("<details>") == 2
    assert "NVIDIA H100 80GB HBM3" in page


def test_no_environment_with_places_is_recorded():
    from surefoot.validation.child import SETTINGS

    assert not {name for name in SETTINGS if "PATH" in name or "HOME" in name or "HOST" in name}
    assert os.environ.get("HOME", "") not in SETTINGS
