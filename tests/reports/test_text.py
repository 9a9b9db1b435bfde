"""Texts, rendered from made-up records and compared with golden files; `pytest --update-golden` refreshes them."""

from io import StringIO

from rich.console import Console

from surefoot.records.export import Export
from surefoot.records.finding import Finding, Findings
from surefoot.records.ledger import Ledger
from surefoot.records.log import LogRow, append_row
from surefoot.records.plan import Plan
from surefoot.records.profile import Profile
from surefoot.records.run import Run
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Holding, Peak, Usage
from surefoot.records.watched import Watched
from surefoot.reports.live import LiveView
from surefoot.reports.text import (
    as_text,
    export_text,
    findings_text,
    plan_text,
    profile_text,
    run_text,
    watched_text,
)

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
    golden("plan.txt", as_text(plan_text(plan)))


def test_profile(golden):
    clock = Tally.of([Account("seconds/forward", 0.346, "seconds"), Account("seconds/backward", 0.715, "seconds")])
    profile = Profile("gpt", KNOBS, "cpu", 3_281_408, FIRST, STEADY, 3, (1.0, 1.1, 1.2), clock)
    measured = profile.tally + Tally.of([Account("memory/temporary", 512, "bytes")])
    golden("profile.txt", as_text(profile_text(profile, Ledger.of(STEADY.tally, measured))))


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
        100,
        819_200,
        90.0,
        5.3,
        2.9,
    )
    with run.log.open("w") as file:
        for step in range(1, 101):
            append_row(file, LogRow(step, 5.3 - 0.024 * step, None if step > 90 else 1.5, 1e-3, 8192, 0.9))
    failed = Run("run2", "gpt", "", "gpt", KNOBS, "failed", 10, "cpu", "2.13.0", reason="NonFiniteLoss: step 1 is nan")
    golden("run.txt", as_text(run_text(run)) + as_text(run_text(failed)))


def test_export(golden):
    files = ("run/export/model.safetensors", "run/export/model.pt2", 10**7, 10**7)
    record = Export("run", *files, ("int64[8, 256]",), True, 1e-5, 0.0, 3e-7)
    golden("export.txt", as_text(export_text(record)))


def test_watched(golden):
    found = Findings("train.py", ("a", "b"), (FINDING,))
    seen = Watched("train.py", 3, ("GPT",), 3_281_408, FIRST, STEADY, found)
    nothing = Watched("hello.py", 0, (), 0, None, None, Findings("hello.py", ("a", "b")))
    golden("watched.txt", as_text(watched_text(seen)) + as_text(watched_text(nothing)))


def rows(view: LiveView, steps: int) -> None:
    run = Run("run", "gpt", "", "gpt", {}, "running", 10, "cpu", "2.13.0")
    with view:
        for step in range(1, steps + 1):
            view(run, LogRow(step, 5.0 - 0.01 * step, 1.0, 1e-3, 8192, 0.5))


def test_the_live_view_writes_lines_where_there_is_no_terminal(golden):
    out = StringIO()
    rows(LiveView(20, console=Console(file=out, width=100)), 20)
    golden("live.txt", out.getvalue())


def test_the_live_view_is_a_bar_on_a_terminal():
    out = StringIO()
    rows(LiveView(20, console=Console(file=out, width=100, force_terminal=True)), 20)
    for part in ("20/20", "loss 4.8000", "16,384 tokens/s", "left"):
        assert part in out.getvalue()
