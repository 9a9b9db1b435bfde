"""Texts, rendered from made-up records and compared with golden files; `pytest --update-golden` refreshes them."""

import re
from dataclasses import replace
from io import StringIO

from rich.console import Console

from surefoot.costs.compare import compared
from surefoot.records.event import Event, append_event
from surefoot.records.export import Export
from surefoot.records.finding import Finding, Findings
from surefoot.records.ledger import Ledger
from surefoot.records.log import append_row
from surefoot.records.plan import Fit, Plan
from surefoot.records.profile import Profile
from surefoot.records.run import Run
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Holding, Peak, Usage
from surefoot.records.watched import Watched
from surefoot.reports.console import as_text
from surefoot.reports.export import export_text
from surefoot.reports.findings import findings_text
from surefoot.reports.live import LiveView
from surefoot.reports.plan import plan_text
from surefoot.reports.profile import comparison_text, profile_text
from surefoot.reports.run import run_text
from surefoot.reports.watched import watched_text
from tests.rows import log_row

MIB = 2**20
TALLY = Tally.of(
    [Account(f"memory/activations/blocks.{i}.mlp", 20 * MIB, "bytes") for i in range(12)]
    + [
        Account("memory/parameters/blocks.0.mlp", 12 * MIB, "bytes"),
        Account("memory/optimizer/blocks.0.mlp", 24 * MIB, "bytes"),
        Account("memory/temporary", 1 * MIB, "bytes"),
        Account("flops/forward/blocks.0.mlp", 60_000_000_000, "FLOP"),
        Account("flops/backward/blocks.0.mlp", 120_000_000_000, "FLOP"),
        Account("tokens/trained", 8192, "tokens"),
    ]
)
PEAK = Peak(277 * MIB, "backward", "blocks.3.mlp.2", "aten.mm.default")
HOLDING = Holding(64 * MIB, "activations", "", "loss", "aten._log_softmax.default", "float32[8192, 2048]")
STEADY = Usage(TALLY, PEAK, {"load": Peak(50 * MIB, "load"), "backward": PEAK}, (HOLDING,))
FIRST = Usage(TALLY, Peak(253 * MIB, "forward", "head", "aten.mm.default"), {})
KNOBS = {"layers": 12, "lr": 0.001, "corpus": "stdlib"}
FINDING = Finding(
    check="missing-zero-grad",
    severity="error",
    seen="in 2 of 3 updates, gradients still held what an earlier update had used",
    where="train.py:16",
    why="every update applies the sum of all gradients since training began",
    remedy="call optimizer.zero_grad() once per update, before the first backward",
)


def test_plan(golden):
    steps = {
        "first": FIRST,
        "steady": STEADY,
        "state_bytes": 36 * MIB,
        "assumptions": (".item() answered 1 (2 times)",),
        "blocks": "24 blocks of layers from runs with 3, 4 and 5",
    }
    plan = Plan("gpt", "the next byte", KNOBS, 3_281_408, 8192, 4, 500, **steps)
    golden("plan_short.txt", as_text(plan_text(plan), width=80))
    golden("plan.txt", as_text(plan_text(plan, tables=True, assumed=True)))


def test_plan_on_a_gpu(golden):
    """Three numbers, and whether it fits: in the first line, by how much."""
    reserved = {"classic": 300 * MIB, "expandable": 280 * MIB}
    memory = {"context_bytes": 426 * MIB, "reserved_bytes": reserved}
    fits, tight, not_at_all = (Fit.of("h100-sxm", memory_bytes=size * MIB, **memory) for size in (1000, 710, 700))
    steps = {"first": FIRST, "steady": STEADY, "reserved_bytes": reserved, "assumptions": ("the context is 426 MiB",)}
    plan = Plan("gpt", "the next byte", KNOBS, 3_281_408, 8192, 4, 500, **steps, fit=fits)
    golden("plan_on_short.txt", as_text(plan_text(plan), width=80))
    golden("plan_on.txt", as_text(plan_text(plan, tables=True, assumed=True)))
    lines = [as_text(plan_text(replace(plan, fit=fit))).splitlines()[0] for fit in (fits, tight, not_at_all)]
    assert lines == [
        "gpt fits h100-sxm, 274.00 MiB to spare: it takes 726.00 MiB of 1000.00 MiB",
        "gpt fits h100-sxm, 4.00 MiB to spare with expandable segments only: it takes 706.00 MiB of 710.00",
        "gpt does not fit h100-sxm, 26.00 MiB too much: it takes 726.00 MiB of 700.00 MiB",
    ]


def test_profile(golden):
    clock = Tally.of([Account("seconds/forward", 0.346, "seconds"), Account("seconds/backward", 0.715, "seconds")])
    profile = Profile(
        "gpt", KNOBS, "cpu", 3_281_408, FIRST, STEADY, 3, (1.0, 1.1, 1.2), clock, data_seconds=(0.2, 0.2, 0.2),
        counted=Tally.of([Account("syncs/loss/gpt.py:90", 4, "times"), Account("moved/forward/head", 10**9, "bytes")]),
        traced=Tally.of([Account("time/forward/head/aten::mm", 0.8, "seconds"),
                         Account("time/load/(outside modules)/python", 0.3, "seconds")]),
        traced_over_timed=1.05, micro_batches=4,
    )  # fmt: skip
    measured = profile.tally + Tally.of([Account("memory/temporary", 512, "bytes")])
    golden("profile.txt", as_text(profile_text(profile, Ledger.of(STEADY.tally, measured))))


def test_a_difference_that_noise_covers_is_none():
    same = compared("gpt", "gpt lr=0.1", [1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 0.8], [1.1, 1.0, 1.0, 0.9, 1.1, 1.2, 0.9])
    text = as_text(comparison_text(same))
    assert "no measurable difference: 1.100 times the seconds, 98% sure of 0.900 to 1.200" in text
    assert "faster" not in text
    assert "slower" not in text
    half = compared("gpt", "gpt compile=whole", [1.0] * 7, [0.5, 0.51, 0.52, 0.5, 0.49, 0.48, 0.5])
    assert "50.0% faster: 0.500 times the seconds, 98% sure of 0.480 to 0.520" in as_text(comparison_text(half))


def test_findings(golden):
    warning = Finding("layers-in-plain-list", "warning", "2 layers", "layers", "not saved", "use nn.ModuleList")
    found = Findings("train.py", ("a", "b", "c"), (FINDING, warning), ("c",))
    clean = Findings("gpt", ("a", "b", "c"))
    golden("findings.txt", as_text(findings_text(found)) + as_text(findings_text(clean)))


def test_run(golden, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    run = Run(
        "run",
        "gpt",
        "the next byte",
        "gpt",
        KNOBS,
        "finished",
        10,
        "cpu",
        "2.13.0",
        steps=100,
        tokens=819_200,
        seconds=90.0,
        first_loss=5.3,
        last_loss=2.9,
        evaluation_loss=3.1,
        updates_left_out=1,
    )
    append_event(run.events, Event(40, "resumed", "start 2, from step-000000040", "2026-11-15 02:03:04"))
    with run.log.open("w") as file:
        for step in range(1, 101):
            append_row(file, log_row(step, loss=5.3 - 0.024 * step, evaluation_loss=3.1 if step == 100 else None))
    failed = Run("run2", "gpt", "", "gpt", KNOBS, "failed", 10, "cpu", "2.13.0", reason="NonFinite: step 1 is nan")
    golden("run.txt", as_text(run_text(run)) + as_text(run_text(failed)))


def test_export(golden):
    files = ("run/export/model.safetensors", "run/export/model.pt2", 10**7, 10**7)
    record = Export("run", *files, ("int64[8, 256]",), True, 1e-5, 0.0, 3e-7)
    golden("export.txt", as_text(export_text(record)))


def test_watched(golden):
    found = Findings("train.py", ("a", "b"), (FINDING,))
    seen = Watched("train.py", 3, ("GPT",), 3_281_408, FIRST, STEADY, found)
    nothing = Watched("hello.py", 0, (), 0, None, None, Findings("hello.py", ("a", "b")))
    told = (watched_text(seen), watched_text(seen, tables=True), watched_text(nothing))
    golden("watched.txt", "".join(map(as_text, told)))


def test_a_watched_script_shows_findings_first_and_infos_only_if_asked():
    info = replace(SLOW, check="asked-info", seen="much " * 50)
    found = Findings("train.py", ("a", "b"), (info, FINDING, replace(info, check="other-info")))
    seen = Watched("train.py", 3, ("GPT",), 3_281_408, FIRST, STEADY, found)
    told = as_text(watched_text(seen))
    assert told.startswith(f"error {FINDING.check}")
    assert "asked-info" not in told
    assert "memory" not in told
    assert told.endswith("1 finding by 2 checks: missing-zero-grad at train.py:16. 2 infos not shown: see --infos.\n")
    asked = as_text(watched_text(seen, infos=True)).splitlines()
    (line,) = (number for number, each in enumerate(asked) if each.startswith("info asked-info"))
    assert asked[line + 1].startswith("info other-info")  # one line each, however long
    assert asked[-1] == "train.py: 1 finding by 2 checks: missing-zero-grad at train.py:16."
    with_callback = as_text(findings_text(found, infos="number"))
    assert with_callback.endswith("2 infos not shown.\n")


def rows(view: LiveView, steps: int) -> None:
    run = Run("run", "gpt", "", "gpt", {}, "running", 10, "cpu", "2.13.0", memory_bytes={"parameters": 2**20})
    with view:
        for step in range(1, steps + 1):
            view(run, log_row(step, loss=5.0 - 0.01 * step, seconds=0.5))


def test_the_live_view_writes_lines_where_there_is_no_terminal(golden):
    out = StringIO()
    rows(LiveView(20, console=Console(file=out, width=100)), 20)
    golden("live.txt", out.getvalue())


def test_the_live_view_is_a_bar_on_a_terminal():
    out = StringIO()
    rows(LiveView(20, console=Console(file=out, width=100, force_terminal=True)), 20)
    for part in ("20/20", "loss 4.8000", "16,384 tokens/s", "done"):
        assert part in out.getvalue()


def test_a_narrow_terminal_shows_step_loss_and_time_left_first():
    out = StringIO()
    rows(LiveView(20, console=Console(file=out, width=50, force_terminal=True)), 3)
    last = next(line for line in out.getvalue().splitlines() if "3/20" in line)
    assert "loss 4.9700  8 s left" in last
    assert "tokens/s" not in last


SLOW = Finding("waiting-for-data", "info", "half of a step", "script.py", "nothing is trained", "raise workers")


def test_errors_come_first_and_costs_last():
    warned, wrong = (replace(SLOW, severity=severity, check=severity) for severity in ("warning", "error"))
    told = as_text(findings_text(Findings("script.py", ("a",), (warned, wrong)), costs=(SLOW,)))
    assert re.findall(r"^(?:error|warning|info) (\S+)", told, re.MULTILINE) == ["error", "warning", "waiting-for-data"]


def test_costs_are_counted_beside_what_checks_found():
    found = Findings("script.py", ("missing-update",))
    assert as_text(findings_text(found)).strip() == "script.py: nothing found by 1 check."
    assert as_text(findings_text(found, costs=(SLOW,))).endswith("script.py: nothing found by 1 check; 1 cost.\n")


def test_what_failed_stands_in_place_of_findings():
    told = as_text(findings_text(Findings("script.py", (), failure="KeyError: 'x' (checks/text/padding.py, line 3)")))
    assert told.startswith("script.py: the checks did not finish, because surefoot failed: KeyError: 'x'")
    assert "nothing found" not in told
