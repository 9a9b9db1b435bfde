"""The verdicts of `bench/resume.py`, on trainers that only pretend."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("resume")


def pretend(change: Callable[[dict, dict], None] = lambda row, job: None, *, end: Callable[[dict], dict] | None = None):
    """A trainer whose losses follow from the step; `change` alters a row, `end` the last line."""

    def train(file: Path) -> None:
        job = json.loads(file.read_text())
        lines = []
        for step in range(job["start"] + 1, (job["stop"] or job["steps"]) + 1):
            row = {"step": step, "data": [f"{step}"], "losses": [f"{step}"], "lr": "0x1p+0", "norm": "0x1p+0"}
            change(row, job)
            lines.append(row)
        if job["stop"] is None:
            lines.append(end(job) if end else {"weights": "a", "optimizer": "b"})
        Path(job["answer"]).write_text("".join(json.dumps(line) + "\n" for line in lines))

    return train


def after(start: int, **parts):
    """A change to the rows of every process but the first."""
    return lambda row, job: row.update(parts) if job["start"] >= start else None


def test_what_agrees_is_exact(bench):
    assert bench.judge(bench.Case("gpt", "32-true", "sgd"), pretend()).text == "exact"


@pytest.mark.parametrize("part", ["data", "losses"])
def test_what_differs_first_is_named_with_its_step(bench, part):
    case = bench.Case("gpt", "32-true", "sgd")
    start = case.stops()[0]
    text = bench.judge(case, pretend(after(start, **{part: ["other"]}))).text
    assert text == f"from {start}: {part} of step {start + 1}"


def test_only_the_last_resume_is_wrong(bench):
    case = bench.Case("gpt", "32-true", "sgd")
    text = bench.judge(case, pretend(after(case.stops()[-1], norm="0x1.8p+0"))).text
    assert text == f"from {case.stops()[-1]}: norm of step {case.stops()[-1] + 1}"


@pytest.mark.parametrize("part", ["weights", "optimizer"])
def test_an_end_that_differs_is_not_exact(bench, part):
    def end(job):
        return {"weights": "a", "optimizer": "b", **({part: "other"} if job["start"] else {})}

    assert bench.judge(bench.Case("gpt", "32-true", "sgd"), pretend(end=end)).text == f"{part} at the end"


def test_a_trainer_that_begins_again_is_not_exact(bench):
    def train(file):
        job = json.loads(file.read_text())
        file.write_text(json.dumps({**job, "start": 0}))
        pretend()(file)

    case = bench.Case("gpt", "32-true", "sgd")
    assert bench.judge(case, train).text == f"from {case.stops()[0]}: began again"


def test_a_trainer_that_is_not_repeatable_is_told_from_one_that_resumes_badly(bench):
    runs = []

    def change(row, job):
        runs.append(job["folder"])
        row["losses"] = [str(len(runs))]

    assert bench.judge(bench.Case("gpt", "32-true", "sgd"), pretend(change)).text == "not repeatable: losses of step 1"


def test_a_refusal_does_not_count(bench):
    def refuse(file):
        job = json.loads(file.read_text())
        Path(job["answer"]).write_text('{"error": "NotImplementedError: no 16-mixed on a CPU"}\n')

    text = bench.judge(bench.Case("gpt", "16-mixed", "sgd"), refuse).text
    assert text.startswith("- ")
    rows = [{"case": "gpt/16-mixed/sgd", "verdicts": {"surefoot": "exact", "other": text}}]
    assert bench.result(rows, ["surefoot", "other"]) == "RESULT exact=1 of=1 other_exact=0 other_of=0"


def test_a_process_that_dies_has_failed(bench):
    def die(file):
        job = json.loads(file.read_text())
        if not job["start"]:
            pretend()(file)

    case = bench.Case("gpt", "32-true", "sgd")
    assert bench.judge(case, die).text == f"from {case.stops()[0]}: failed: no answer"


def test_the_knobs_of_a_case_reach_the_trainer(bench):
    seen = []

    def train(file):
        seen.append(json.loads(file.read_text())["knobs"])
        pretend()(file)

    bench.judge(bench.Case("gpt", "bf16-true", "nadam"), train)
    assert seen == [{"precision": "bf16-true", "optimizer": "nadam"}] * 5


def test_a_quarter_of_the_cases_holds_every_pair(bench):
    cases = [
        bench.Case(work, precision, optimizer)
        for work in bench.WORKS
        for precision in bench.PRECISIONS
        for optimizer in bench.OPTIMIZERS
    ]
    taken = [case for case in cases if case.is_for_all()]
    assert len(taken) * 4 == len(cases)
    assert len({(case.work, case.precision) for case in taken}) == 16
    assert len({(case.work, case.optimizer) for case in taken}) == 32
    assert len({(case.precision, case.optimizer) for case in taken}) == 32
