"""CUDA calls: all in one file, and right for statistics and events as torch documents them.

No GPU was at hand: the statistics below are made up, with the keys of `torch.cuda.memory_stats`'s documentation. Two
numbers of the same peak differ, so that a wrong key shows.
"""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import surefoot
from surefoot.costs.ledgers import ledger_of
from surefoot.events.listener import Segment
from surefoot.meters.clock import DeviceClockMeter
from surefoot.records.profile import DeviceMemory
from surefoot.ways import profile as way
from surefoot.world import cuda

MIB = 1 << 20
SOURCE = Path(surefoot.__file__).parent


def statistics(requested: int, allocated: int, reserved: int, retries: int = 0) -> dict[str, int]:
    """What `torch.cuda.memory_stats` returns, by its documentation; the three sizes are peaks."""
    made = {}
    for name, peak in (("requested", requested), ("allocated", allocated), ("reserved", reserved), ("active", 7)):
        for pool in ("all", "large_pool", "small_pool"):
            share = {"all": 1, "large_pool": 2, "small_pool": 3}[pool]
            amounts = {"current": peak // 4, "peak": peak, "allocated": 9 * peak, "freed": 8 * peak}
            made |= {f"{name}_bytes.{pool}.{kind}": amount // share for kind, amount in amounts.items()}
    return {**made, "num_alloc_retries": retries, "num_ooms": 0, "num_device_alloc": 12}


def test_peaks_are_read_by_the_documented_keys():
    assert cuda.peaks_of(statistics(100, 200, 300, 4)) == cuda.Peaks(100, 200, 300, 4)
    assert cuda.peaks_of({}) == cuda.Peaks(0, 0, 0, 0)  # before CUDA is used


def test_every_documented_key_is_still_documented():
    for name in ("requested_bytes.", "allocated_bytes.", "reserved_bytes.", "num_alloc_retries"):
        assert f'"{name}' in (torch.cuda.memory_stats.__doc__ or ""), name
    assert "cudaMemGetInfo" in (torch.cuda.mem_get_info.__doc__ or "")
    assert "milliseconds" in (torch.cuda.Event.elapsed_time.__doc__ or "")


def test_all_cuda_calls_are_in_one_file():
    """Docstrings and the source of checks may name torch.cuda; code calls it in one place, private parts in another.

    A third answers in its place, for a card that is not there.
    """
    calls = re.compile(r"^[^#\"'`]*\btorch\.cuda\.(?!_)\w+", re.M)
    found = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if "rules" not in file.parts and calls.search(file.read_text(encoding="utf-8"))
    }
    assert found == {"torch_inside/memory_history.py", "world/card/answers.py", "world/cuda.py"}


class Device:
    """A GPU that behaves as torch.cuda documents: peaks since the last reset, segments that stay reserved."""

    def __init__(self) -> None:
        self.live, self.reserved, self.context = 0, 0, 400 * MIB
        self.peak = self.reserved_peak = 0

    def allocate(self, size: int) -> None:
        self.live += size
        self.peak = max(self.peak, self.live)
        self.reserved = max(self.reserved, -(-self.live // (20 * MIB)) * 20 * MIB)
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def free(self, size: int) -> None:
        self.live -= size

    def statistics(self) -> dict[str, int]:
        return statistics(self.peak, self.peak + 512, self.reserved_peak)

    def reset(self) -> None:
        self.peak, self.reserved_peak = self.live, self.reserved

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        total = 80 << 30
        monkeypatch.setattr(torch.cuda, "memory_stats", self.statistics)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (total - self.context - self.reserved, total))
        monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [{"is_expandable": False}])


def test_memory_of_a_gpu_is_counted_over_building_and_two_steps(monkeypatch):
    gpu = Device()
    gpu.install(monkeypatch)
    memory = way._CudaMemory()
    gpu.allocate(50 * MIB)  # building takes more for a moment
    gpu.free(20 * MIB)

    def step() -> None:
        gpu.allocate(11 * MIB)
        gpu.free(11 * MIB)

    steady, whole = way._steady_peak(memory, step, times=1)
    assert steady == 41 * MIB
    assert whole == DeviceMemory(
        requested_bytes=50 * MIB,
        allocated_bytes=50 * MIB + 512,
        reserved_bytes=60 * MIB,
        used_bytes=460 * MIB,
        used_before_bytes=400 * MIB,
        total_bytes=80 << 30,
    )


def test_expandable_segments_are_seen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [{"is_expandable": False}, {"is_expandable": True}])
    assert cuda.has_expandable_segments()
    monkeypatch.setattr(torch.cuda, "memory_snapshot", list)
    assert not cuda.has_expandable_segments()


def test_a_memory_limit_is_a_share_of_the_device_and_ends(monkeypatch):
    called = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 80 << 30))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: called.append(share))
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **given: called.append(given))
    with cuda.memory_limit(20 << 30, torch.device("cuda")):
        assert called == [0.25, {"max_entries": 100_000, "stacks": "python"}]
    assert called[2:] == [{"enabled": None}, 1.0]


def test_the_private_parts_of_torch_that_cuda_needs_are_there():
    for name in ("_record_memory_history", "_dump_snapshot"):
        assert callable(getattr(torch.cuda.memory, name, None)), name
    documented = torch.cuda.memory._snapshot.__doc__ or ""
    for name in (
        "segments",
        "device_traces",
        "requested_size",
        "active_allocated",
        "inactive",
        "device_free",
        "frames",
    ):
        assert name in documented, name


class Event:
    """An event of a device whose clock a test sets; as documented, it must be waited for, and counts milliseconds."""

    now = 0.0

    def __init__(self, *, enable_timing: bool = False) -> None:
        assert enable_timing
        self.at, self.done = -1.0, False

    def record(self) -> None:
        self.at = Event.now

    def synchronize(self) -> None:
        self.done = True

    def elapsed_time(self, end: "Event") -> float:
        assert end.done
        return (end.at - self.at) * 1000


def test_phases_are_timed_by_the_devices_own_clock(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    load, forward, backward = map(Segment, ("load", "forward", "backward"))
    Event.now = 5.0
    clock = DeviceClockMeter(SimpleNamespace(segment=load), mark=cuda.mark, seconds_between=cuda.seconds_between)
    for later, segment in ((1.0, forward), (2.0, backward), (4.0, forward), (0.5, load)):
        Event.now += later
        clock.entered(segment)
    Event.now += 0.25
    found = {account.name: account.amount for account in clock.accounts()}
    assert found == {"seconds/load": 1.25, "seconds/forward": 2.5, "seconds/backward": 4.0}
    Event.now += 3.0
    assert {account.name: account.amount for account in clock.accounts()} == {"seconds/load": 3.0}


def test_a_profile_on_a_gpu_is_held_against_the_plan_for_it(monkeypatch, small_recipe):
    """The whole way of a profile, with CUDA's part of torch replaced by what it documents."""
    gpu = Device()
    gpu.install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    counting, clock = way._counting, way._clock
    monkeypatch.setattr(way, "_counting", lambda _: counting(torch.device("cuda")))
    monkeypatch.setattr(way, "_clock", lambda phases, _: clock(phases, torch.device("cuda")))
    recipe = small_recipe("gpt")

    def loss(model: torch.nn.Module, batch: Any) -> Any:
        gpu.allocate(30 * MIB)
        Event.now += 0.25
        gpu.free(30 * MIB)
        return recipe.loss(model, batch)

    profile = way.clocked(replace(recipe, loss=loss), timed_steps=2)
    assert profile.allocated_peak_bytes == 30 * MIB
    assert profile.clock.total("seconds") == 0.25 * profile.micro_batches
    plan = surefoot.plan(recipe, on="h100-sxm")
    entries = {entry.account: entry for entry in ledger_of(plan, profile).entries}
    assert entries["device/requested"].measured == 30 * MIB
    assert entries["device/requested"].predicted == plan.live_bytes
    assert entries["device/allocated"].predicted == plan.allocated_bytes["classic"]
    assert entries["device/reserved"].predicted == plan.reserved_bytes["classic"]
    assert entries["device/reserved"].measured == 40 * MIB
    assert entries["device/used"].predicted == plan.fit.total_bytes
    assert entries["device/used"].measured == 440 * MIB
    assert entries["allocated/peak"].predicted == plan.steady.peak.peak_bytes
    assert {"seconds/forward", "seconds/backward", "step/seconds"} <= set(entries)


def test_a_plan_with_expandable_segments_is_compared_with_such(small_recipe):
    recipe = small_recipe("gpt")
    plan = surefoot.plan(recipe, on="h100-sxm")
    assert plan.reserved_bytes["classic"] != plan.reserved_bytes["expandable"]
    profile = way.clocked(recipe, timed_steps=1)
    seen = DeviceMemory(requested_bytes=1, reserved_bytes=2, segments="expandable")
    entries = {entry.account: entry for entry in ledger_of(plan, replace(profile, device_memory=seen)).entries}
    assert entries["device/reserved"].predicted == plan.reserved_bytes["expandable"]
