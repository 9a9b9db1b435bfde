"""plan --snapshot: torch's own tools read the file, loading it runs no code, and its live bytes are the plan's."""

import pickle
import pickletools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.cuda import _memory_viz
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import DiskError
from tests.conftest import SMALL

VIEWER = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET", "LONG_BINGET", "EMPTY_DICT", "EMPTY_LIST", "SETITEM",
    "SETITEMS", "APPEND", "APPENDS", "SHORT_BINUNICODE", "BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1",
    "NEWFALSE", "NEWTRUE",
}  # fmt: skip
"""Opcodes that `unpickle` in torch/utils/viz/MemoryViz.js knows. None of them calls or imports anything."""


def planned(tmp_path: Path, recipe: surefoot.Recipe, **options: Any) -> tuple[surefoot.Plan, dict[str, Any]]:
    file = tmp_path / "plan.pickle"
    plan = surefoot.plan(recipe, snapshot=str(file), **options)
    content = file.read_bytes()
    assert {opcode.name for opcode, _, _ in pickletools.genops(content)} <= VIEWER
    assert content[1] == 4  # the viewer refuses other protocols
    return plan, pickle.loads(content)


def levels(snapshot: dict[str, Any], step: str = "") -> dict[int, int]:
    """Live bytes after every allocation of a step, by the number of the event."""
    (trace,) = snapshot["device_traces"]
    live, found = 0, {}
    for number, event in enumerate(trace):
        if event["action"] == "alloc":
            live += event["size"]
            if step in frame(event, "phase"):
                found[number] = live
        elif event["action"] == "free_completed":
            live -= event["size"]
    return found


def frame(event: dict[str, Any], kind: str) -> str:
    return next((each["name"] for each in event["frames"] if each["filename"] == kind), "")


def at(snapshot: dict[str, Any], moment: int) -> dict[str, int]:
    """Live bytes by account after an event."""
    amounts, accounts = Counter(), {}
    for event in snapshot["device_traces"][0][: moment + 1]:
        if event["action"] == "alloc":
            accounts[event["addr"]] = event["category"]
            amounts[event["category"]] += event["size"]
        elif event["action"] == "free_completed":
            amounts[accounts.pop(event["addr"])] -= event["size"]
    return {name: amount for name, amount in amounts.items() if amount}


CASES = {
    "one CPU": ({}, None),
    "a GPU": ({"precision": "bf16-mixed", "recompute": "full"}, "h100-sxm"),
    "shards, built on the host": ({"dp_shard": "2"}, "2xh100-sxm"),
    "many blocks, of which a few run": ({"layers": "20"}, None),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory) -> tuple[surefoot.Plan, dict[str, Any]]:
    knobs, on = CASES[request.param]
    words = {**dict(word.split("=") for word in SMALL["gpt"]), **knobs}
    recipe = surefoot.load_recipe("gpt", [f"{name}={value}" for name, value in words.items()])
    plan, snapshot = planned(tmp_path_factory.mktemp("snapshot"), recipe, on=on)
    assert plan.blocks.startswith("20 blocks of blocks from" if "layers" in knobs else "")
    return plan, snapshot


def test_live_bytes_reach_the_peak_of_the_plan(case):
    plan, snapshot = case
    assert max(levels(snapshot).values()) == plan.live_bytes
    steady = levels(snapshot, "steady step")
    assert max(steady.values()) == plan.steady.peak.peak_bytes
    peak = max(steady, key=steady.__getitem__)
    assert at(snapshot, peak) == {name: size for name, size in plan.steady.tally.under("memory").items() if size}
    event = snapshot["device_traces"][0][peak]
    assert frame(event, "operator").startswith(plan.steady.peak.operator)
    assert frame(event, "phase") == f"{plan.steady.peak.phase}, steady step"


def test_segments_are_those_that_the_plan_reserves(case):
    plan, snapshot = case
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == plan.reserved_bytes["classic"]
    reserved = [event for event in snapshot["device_traces"][0] if event["action"] == "segment_alloc"]
    assert [event["addr"] for event in reserved] == [segment["address"] for segment in snapshot["segments"]]
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        ends = [block["address"] + block["size"] for block in segment["blocks"]]
        assert [segment["address"], *ends[:-1]] == [block["address"] for block in segment["blocks"]]


def test_no_two_live_blocks_overlap(case):
    _, snapshot = case
    live: dict[int, int] = {}
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            end = event["addr"] + event["size"]
            assert all(event["addr"] >= other + size or end <= other for other, size in live.items())
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"]) == event["size"]


def test_torchs_own_tools_read_it(case):
    """They raise where blocks do not fill their segments. The page has the snapshot inside."""
    plan, snapshot = case
    assert f"segments: {len(snapshot['segments'])}" in _memory_viz.segsum(snapshot)
    traced = _memory_viz.trace(snapshot)
    assert traced.startswith("Device 0")
    assert "cudaMalloc" in traced
    stacks = _memory_viz.memory(snapshot, format_flamegraph=str).splitlines()
    kept = sum(int(line.rpartition(" ")[2]) for line in stacks if "account:0:parameters" in line)
    assert kept == plan.steady.tally.total("memory/parameters")
    assert any("account:0:optimizer;phase:0:update, first step;module:0:blocks.1.mlp.0" in line for line in stacks)
    for page in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
        assert "add_local_files" in page


def test_the_viewer_gets_a_category_for_what_has_none(case):
    """MemoryViz.js stops at `snapshot.categores` if there are categories and none of them is `unknown`."""
    _, snapshot = case
    categories = {event["category"] for event in snapshot["device_traces"][0] if "category" in event}
    assert categories >= {"parameters", "gradients", "optimizer", "activations", "inputs", "unknown"}


def test_the_command_writes_the_file_and_replaces_it(tmp_path: Path):
    file = tmp_path / "plan.pickle"
    file.write_text("older")
    command = ["plan", "gpt", *SMALL["gpt"], "--snapshot", str(file)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert set(pickle.loads(file.read_bytes())) == {"segments", "device_traces"}
    assert [each.name for each in tmp_path.iterdir()] == ["plan.pickle"]
    result = CliRunner().invoke(app, [*command, "--fit", "--budget", "memory=1GiB"])
    assert result.exit_code == 2
    assert "--snapshot writes one plan" in " ".join(result.output.replace("│", " ").split())
    result = CliRunner().invoke(app, ["plan", "gpt", *SMALL["gpt"], "--snapshot", str(tmp_path / "gone" / "x")])
    assert isinstance(result.exception, DiskError)
