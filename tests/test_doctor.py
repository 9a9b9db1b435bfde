"""surefoot doctor: what it says of this machine, and that each part of the self-test can fail."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import tomllib
import torch
from typer.testing import CliRunner

from surefoot.cli import checkup, self_test
from surefoot.cli.main import app
from surefoot.errors import DiskError, MissingPackage
from surefoot.records.codec import from_json
from surefoot.records.doctor import Checkup, Device, Extra, SelfTest
from surefoot.records.finding import Finding, Findings
from surefoot.reports.console import as_text
from surefoot.reports.doctor import checkup_text

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
CHECKUP = Checkup(
    versions={"surefoot": "1.0", "python": "3.12.1", "torch": "2.13.0"},
    devices=(Device("cpu", "a CPU, 2 cores", "bf16 in hardware"), Device("cuda", "no GPU found")),
    compiler=None,
    folder="/home/me",
    free_bytes=5 * 2**20,
    extras=(Extra("log", "logs", ("tensorboard 2.20",), ("wandb",), "pip install wandb"),),
    torch="surefoot was tried with 2.13.0",
    tests=(SelfTest("plan", True, "a step is planned", 0.5), SelfTest("train", False, "no space", 1.0, "make room")),
)


def test_the_command_says_that_all_is_well():
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    found = from_json(Checkup, result.stdout)
    assert found.is_well
    assert [test.name for test in found.tests] == ["plan", "check", "train", "exactness"]
    assert "the same bits after a stop and a resume" in found.tests[2].said
    assert "agree to the byte" in found.tests[3].said
    assert [device.name for device in found.devices] == ["cpu", "cuda", "mps"]
    assert found.versions["torch"].startswith("2.")
    assert found.free_bytes > 0
    assert json.loads(result.stdout)["extras"][0]["install"].startswith("pip install")


def test_every_extra_is_listed_with_what_it_adds():
    extras = set(PROJECT["optional-dependencies"]) - {*checkup.OF_DEVELOPERS}
    assert extras <= set(checkup.PURPOSES), "say in cli/checkup.py what the new extra adds"
    listed = {extra.name: extra for extra in checkup.extras()}
    assert set(listed) <= extras
    for extra in listed.values():
        assert extra.installed or extra.missing


def test_an_extra_without_its_packages_is_missing(monkeypatch):
    asked = ["torch>=2", "surely-not-there>=1 ; extra == 'log'", 'numpy>=1; extra == "log"', "x; extra == 'dev'"]
    monkeypatch.setattr(checkup.importlib.metadata, "requires", lambda _: asked)
    (extra,) = checkup.extras()
    assert (extra.name, extra.missing, extra.install) == ("log", ("surely-not-there",), "pip install surely-not-there")
    assert [each.split()[0] for each in extra.installed] == ["numpy"]


def test_the_text_ends_with_what_to_do(golden):
    golden("doctor.txt", as_text(checkup_text(CHECKUP)))
    well = replace(CHECKUP, compiler="/usr/bin/c++", free_bytes=2**33, tests=CHECKUP.tests[:1])
    text = as_text(checkup_text(well))
    assert text.rstrip().endswith("all is well: the self-test passed in 500 ms")
    assert "little" not in text


@pytest.mark.parametrize(
    ("version", "standing"),
    [
        ("2.13.0+cu130", "surefoot was tried with 2.13.0+cu130"),
        ("2.7.1", "2.7.1 is too old: surefoot needs 2.8 or newer"),
        ("2.99.0", "surefoot was not tried with torch 2.99.0, only with 2.8.0"),
        ("none", "pip has no note of its version"),
    ],
)
def test_it_says_which_torch_is_too_old_or_untried(version: str, standing: str):
    assert checkup._standing(version).startswith(standing)


def test_a_torch_that_is_too_old_fails_it_with_a_remedy(monkeypatch):
    def refuse() -> None:
        raise MissingPackage(
            "surefoot needs torch 2.8 or newer, and torch 2.4.0 is installed: pip install 'torch>=2.8'"
        )

    monkeypatch.setattr(checkup, "require_torch", refuse)
    (test,) = checkup.checkup().tests
    assert (test.passed, test.remedy) == (False, "pip install 'torch>=2.8'")


def failing(part) -> SelfTest:
    test = self_test._tried("part", part)
    assert not test.passed
    assert test.remedy == "please report it with the output of `surefoot doctor --json`"
    return test


def test_a_part_that_did_not_run_is_not_called_ok(monkeypatch):
    monkeypatch.setattr("surefoot.world.world.accelerator", lambda: torch.device("meta"))
    part = self_test._tried("exactness", self_test._exactness)
    assert part.passed
    assert not part.ran
    text = as_text(checkup_text(replace(CHECKUP, tests=(CHECKUP.tests[0], part))))
    assert "exactness  NOT RUN: a plan is compared on a CPU; on meta, `surefoot profile RECIPE` compares them" in text
    assert text.rstrip().endswith("not run: exactness")


@pytest.mark.parametrize(
    ("error", "torch", "expected"),
    [
        (DiskError("full"), "2.13.0", "TMPDIR names another folder"),
        (TypeError("x"), "2.13.0", "please report it"),
        (
            TypeError("x"),
            "2.99.0",
            r"was not tried with torch 2.99.0, only with 2.8.0, .*; if it fails with one of these too, please",
        ),
    ],
)
def test_a_remedy_fits_its_error(monkeypatch, error, torch, expected):
    monkeypatch.setattr(self_test, "version", lambda _: torch)
    assert re.search(expected, self_test._remedy(error))
    assert ("TMPDIR" in self_test._remedy(error)) == isinstance(error, OSError | DiskError)


def test_a_finding_in_clean_code_fails_it(monkeypatch):
    found = Findings("sentiment", ("a",), (Finding("a", "info", "seen", "where", "why", "remedy"),))
    monkeypatch.setattr("surefoot.ways.check.check", lambda recipe: found)
    assert failing(self_test._check).said == "found a in a recipe without a bug"


def test_a_plan_that_is_a_byte_off_fails_it(monkeypatch):
    from surefoot.ways.plan import plan as right

    def wrong(recipe):
        plan = right(recipe)
        peak = replace(plan.steady.peak, peak_bytes=plan.steady.peak.peak_bytes + 1)
        return replace(plan, steady=replace(plan.steady, peak=peak))

    monkeypatch.setattr("surefoot.ways.plan.plan", wrong)
    assert "bytes at the peak, and the step took" in failing(self_test._exactness).said


@pytest.mark.parametrize(
    ("forgotten", "said"),
    [("path", "started again from the first step"), ("seed", "ended with other weights than one that was not stopped")],
)
def test_a_resume_that_forgets_something_fails_it(monkeypatch, tmp_path, forgotten, said):
    from surefoot.ways.train import train as right

    calls = []

    def wrong(recipe, **options):
        calls.append(options)
        if forgotten == "path" and len(calls) == 3:
            options["path"] = str(tmp_path / "elsewhere")
        return right(replace(recipe, seed=7) if forgotten == "seed" and len(calls) > 1 else recipe, **options)

    monkeypatch.setattr("surefoot.ways.train.train", wrong)
    assert said in failing(self_test._train).said


def test_a_disk_that_cannot_be_written_fails_it_and_hides_no_other_part(monkeypatch):
    def refuse(*_, **__):
        raise DiskError("no space left")

    monkeypatch.setattr("surefoot.ways.train.train", refuse)
    monkeypatch.setattr(self_test, "_plan", lambda: "planned")
    monkeypatch.setattr(self_test, "_check", lambda: "checked")
    monkeypatch.setattr(self_test, "_exactness", lambda: "agree")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "FAILED, no space left" in " ".join(result.stdout.split())
    assert "TMPDIR names another folder" in " ".join(result.stdout.split())
    assert result.stdout.count(" ok, ") == 3
