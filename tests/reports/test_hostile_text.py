"""Texts of records that hold control characters and markup: a terminal is sent neither, and shows what is there."""

import re
from dataclasses import replace
from io import StringIO

import pytest

from surefoot.costs.compare import compared
from surefoot.hardware import datasheet
from surefoot.records.audit import Audit
from surefoot.records.export import Export, Weights
from surefoot.records.ledger import Entry, Ledger
from surefoot.records.manifest import Manifest, Shard
from surefoot.records.plan import Plan
from surefoot.records.run import read_run
from surefoot.reports.audit import audit_text
from surefoot.reports.console import PlainConsole, as_text
from surefoot.reports.data import manifest_text, token_ledger_text
from surefoot.reports.export import export_text, weights_text
from surefoot.reports.findings import findings_text
from surefoot.reports.gather import report_of
from surefoot.reports.hardware import device_text
from surefoot.reports.ledger import ledger_text
from surefoot.reports.live import LiveView
from surefoot.reports.plan import plan_text
from surefoot.reports.profile import comparison_text, profile_text
from surefoot.reports.report import report_text
from surefoot.reports.run import run_text
from surefoot.reports.watched import watched_text
from tests.command_line import process as surefoot
from tests.reports.hostile import CONTROLS, FINDINGS, RUN, WATCHED, hostile, hostile_run
from tests.reports.pages import PROFILE, STEADY, TOKENS
from tests.rows import log_row
from tests.terminals import LIVE


def whole_plan_text(plan: Plan):
    return plan_text(plan, tables=True, assumed=True)


LEDGER = Ledger((Entry("memory", "unit", 1, 2, attribution="a", cause="b"), Entry("flops", "unit", None, 2)))
TEXTS = {
    whole_plan_text: Plan(
        "gpt", "", {"layers": 2}, 1_000, 8192, 1, 30, steady=STEADY, choices=("a",), assumptions=("b",)
    ),
    findings_text: FINDINGS,
    watched_text: WATCHED,
    ledger_text: LEDGER,
    export_text: Export("run", "w", "p", 1, 1, ("x",), True, 1e-3, 0.0, 0.0),
    weights_text: Weights("run", 1, ("w",), 10, 1),
    audit_text: Audit("run", 1, 2, ("a",)),
    token_ledger_text: TOKENS,
    comparison_text: compared("a", "b", [1.0] * 15, [1.0] * 15),
    device_text: datasheet("h100-sxm"),
    manifest_text: Manifest("uint16", 10, "bytes", 1, (Shard("a", 3, 1, 5),)),
    run_text: RUN,
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.__name__)
def test_no_control_character_of_a_record_is_sent(text):
    shown = as_text(text(hostile(TEXTS[text], CONTROLS)), width=2000)
    assert LIVE.findall(shown) == []
    assert "\\x1b[31m" in shown
    assert "[red]x[/red][link=http://a]y" in shown or text is manifest_text  # which ends a source's name at a slash


def test_a_terminal_gets_colours_of_ours_alone():
    file = StringIO()
    console = PlainConsole(file=file, force_terminal=True, width=500, color_system="standard", legacy_windows=False)
    console.print(profile_text(replace(hostile(PROFILE, CONTROLS), traced_over_timed=1.5), hostile(LEDGER, CONTROLS)))
    console.print(whole_plan_text(hostile(TEXTS[whole_plan_text], CONTROLS)))
    left = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert "\x1b[1m" in file.getvalue()
    assert LIVE.findall(left) == []


def test_the_live_view_shows_choices_as_text():
    file = StringIO()
    run = replace(hostile(RUN, CONTROLS), memory_bytes={f"parameters{CONTROLS}": 10})
    with LiveView(2, console=PlainConsole(file=file, width=500)) as view:
        view(run, log_row(1, loss=2.0))
    assert LIVE.findall(file.getvalue()) == []
    assert "a choice\\x1b[31m" in file.getvalue()


def test_the_bar_shows_names_of_metrics_as_text():
    file = StringIO()
    console = PlainConsole(file=file, force_terminal=True, width=500, legacy_windows=False)
    with LiveView(2, console=console) as view:
        view(RUN, replace(log_row(1, loss=2.0), metrics={"[/]": 1.0, "[bold]score": 2.0}))
    assert "[/] 1.0000  [bold]score 2.0000" in file.getvalue()


def test_a_half_of_a_character_can_be_shown(tmp_path):
    """JSON can hold one; no terminal and no file can."""
    folder = hostile_run(tmp_path / "a", "\ud800")
    shown = as_text(report_text(report_of(folder), [read_run(folder)]), width=500)
    assert "\\ud800" in shown
    shown.encode()


def test_the_command_line_too(tmp_path):
    folder = hostile_run(tmp_path / "a", CONTROLS)
    done = surefoot("report", "a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert LIVE.findall(done.stdout + done.stderr) == []
    assert "it stopped\\x1b[31m" in done.stdout
    (folder / "run.json").write_text('{"status": "\\u001b[31m"}')
    for words in (("report", "a"), ("plan", "gpt", f"\x1b[31m[red]{CONTROLS}=1"), ("plan", f"\x1b]0;x\x07{CONTROLS}")):
        done = surefoot(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert LIVE.findall(done.stdout + done.stderr) == []
