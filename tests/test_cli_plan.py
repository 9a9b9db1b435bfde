"""surefoot plan with a budget, against another plan, and looking for what fits: exit codes, messages, JSON."""

import json

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.errors import SurefootError

CRUNCHER = ("plan", "cruncher", "width=16", "layers=3", "samples=512")


def surefoot(*words: str):
    """The command in this process, which has torch loaded; its exit code and what it printed."""
    done = CliRunner().invoke(app, [*words], env={"COLUMNS": "200"})
    if isinstance(done.exception, SurefootError):
        raise done.exception  # `main` makes one message of it: tests/test_cli.py
    return done


@pytest.mark.parametrize(("memory", "code", "said"), [("1GiB", 0, "to spare"), ("1KiB", 1, "too much")])
def test_a_budget_for_memory_is_a_verdict_and_with_ci_an_exit_code(memory, code, said):
    done = surefoot(*CRUNCHER, "--budget", f"memory={memory}", "--ci")
    assert done.exit_code == code
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("memory: "))
    assert f" of 1.00 {memory[1:]} that the budget allows: " in line
    assert line.endswith(said)
    assert surefoot(*CRUNCHER, "--budget", f"memory={memory}").exit_code == 0  # a plan is an answer, not a check


def test_limits_may_follow_each_other_as_knobs_do():
    words = (*CRUNCHER, "--on", "2xh100-sxm", "--budget", "memory=76GiB", "days=1e-9", "dollars=2e6", "--ci", "--json")
    done = surefoot(*words)
    assert done.exit_code == 1
    limits = {limit["name"]: limit for limit in json.loads(done.stdout)["limits"]}
    assert {name: limit["amount"] <= limit["allowed"] for name, limit in limits.items()} == {
        "memory": True,
        "days": False,
        "dollars": True,
    }
    assert limits["days"]["allowed"] == 1e-9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--budget", "memory=76"), "memory is a number and a unit, such as memory=76GiB; units: KiB"),
        (("--budget", "weeks=2"), "a budget has no limit 'weeks'; known: memory, days, dollars"),
        (("--budget", "days=soon"), "knob days='soon' is not a number"),
        (("--budget", "days=2"), "this plan states no days and no dollars: name the GPUs with --on"),
        (("--fit",), "fit into how much memory\\? name GPUs with --on, or a limit with --budget memory=76GiB"),
        (("--against", "nothing"), "nothing is not a file, a run directory or a knob such as layers=12"),
        (("--against", "."), "holds no plan"),
        (("--against", "pyproject.toml"), "is not a plan printed by `surefoot plan --json`"),
    ],
)
def test_what_is_refused_says_what_to_do(words, message, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    with pytest.raises(SurefootError, match=message):
        surefoot(*CRUNCHER, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ci",), "--ci needs --on or --budget"),
        (("--largest", "layers"), "--largest needs --fit"),
        (("--fit", "--measure"), "one of them"),
        (("--fit", "--against", "layers=2"), "leave out --fit and --budget"),
    ],
)
def test_options_that_do_not_go_together(words, message):
    done = surefoot(*CRUNCHER, *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_a_plan_against_other_knobs_and_against_a_kept_one(tmp_path):
    done = surefoot(*CRUNCHER, "--against", "width=32", "--json")
    found = json.loads(done.stdout)
    assert found["turned"] == [{"name": "width", "before": 32, "after": 16}]
    amounts = {change["account"]: (change["before"], change["after"]) for change in found["changes"]}
    assert amounts["parameters"] == (3 * (32 * 32 + 32) + 33, 3 * (16 * 16 + 16) + 17)
    assert amounts["memory"][0] == sum(sides[0] for name, sides in amounts.items() if name.startswith("memory/"))
    kept = tmp_path / "plan.json"
    kept.write_text(surefoot(*CRUNCHER, "--json").stdout)
    for place in (kept, tmp_path):  # a file, and a run directory
        text = surefoot(*CRUNCHER, "lr=1", "--against", str(place)).stdout
        assert "lr" in text
        assert "same" in text


def test_what_fits_in_json_and_in_text():
    words = (*CRUNCHER, "--fit", "--budget", "memory=100KiB")
    found = json.loads(surefoot(*words, "--json").stdout)
    (answer,) = found["answers"]
    assert answer["trial"]["memory_bytes"] <= 100 * 1024 < answer["beyond"]["memory_bytes"]
    text = surefoot(*words).stdout
    assert f"largest micro-batch: micro_batch_size={answer['trial']['micro_batch_size']}" in text
    assert answer["trial"]["command"] in text
    assert "too much" in text


def test_what_fits_nowhere_exits_with_1_in_ci():
    words = (*CRUNCHER, "micro_batch_size=4", "--fit", "--budget", "memory=1KiB")
    assert surefoot(*words).exit_code == 0
    done = surefoot(*words, "--ci")
    assert done.exit_code == 1
    assert "nothing that was planned fits" in done.stdout
