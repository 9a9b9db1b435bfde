"""`surefoot explain snapshot.pickle`, on snapshots made by hand in the documented shape, and on those of a plan."""

import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import surefoot
from surefoot.cli import main as cli
from surefoot.debug.memory.allocation_stacks import told_by
from surefoot.debug.memory.snapshot import booked_snapshot
from surefoot.errors import RunError

SITE = "/usr/lib/python3/site-packages/torch"
USER = ("/home/me/train.py", 40, "<module>")
CALL = (f"{SITE}/nn/modules/module.py", 1800, "_call_impl")
MODEL = ("/home/me/model.py", 12, "forward")
LINEAR = (f"{SITE}/nn/modules/linear.py", 134, "forward")
BACKWARD = (f"{SITE}/autograd/__init__.py", 360, "backward")
STACKS = {
    "parameters": [
        (f"{SITE}/nn/modules/module.py", 1300, "convert"),
        (f"{SITE}/nn/modules/module.py", 900, "_apply"),
        (f"{SITE}/nn/modules/module.py", 1320, "to"),
        USER,
    ],
    "activations": [LINEAR, CALL, MODEL, CALL, USER],
    "gradients": [(f"{SITE}/autograd/graph.py", 860, "_engine_run_backward"), BACKWARD, USER],
    "optimizer": [(f"{SITE}/optim/adam.py", 180, "_init_group"), (f"{SITE}/optim/adam.py", 230, "step"), USER],
    "inputs": [(f"{SITE}/utils/data/_utils/pin_memory.py", 60, "pin_memory"), USER],
    "unknown": [USER],
}


def frames(stack):
    return [{"filename": file, "line": line, "name": name} for file, line, name in stack]


def block(size, requested, state="active_allocated", stack=()):
    return {"size": size, "requested_size": requested, "address": 0, "state": state, "frames": frames(stack)}


def segment(*blocks, address=0x7F00_0000_0000, total=None):
    at, placed = address, []
    for each in blocks:
        placed.append({**each, "address": at})
        at += each["size"]
    total = at - address if total is None else total
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "stream": 0,
        "segment_type": "large",
        "blocks": placed,
    }


@pytest.fixture
def booked(tmp_path):
    def book(*segments, traces=()):
        file = tmp_path / "snapshot.pickle"
        file.write_bytes(pickle.dumps({"segments": list(segments), "device_traces": list(traces)}))
        return booked_snapshot(file)

    return book


PHASES = {"parameters": "init", "activations": "forward", "gradients": "backward", "optimizer": "update"}


@pytest.mark.parametrize(("account", "phase"), [*PHASES.items(), ("inputs", "load"), ("unknown", "")])
def test_a_stack_tells_account_phase_and_line(account, phase):
    told = told_by(frames(STACKS[account]))
    assert (told.account, told.phase) == (account, phase)
    line = 12 if account == "activations" else 40
    assert told.place.line == line


def test_the_module_of_an_activation_is_named_and_recomputation_is_no_gradient():
    assert told_by(frames(STACKS["activations"])).module == "linear"
    again = [LINEAR, CALL, MODEL, (f"{SITE}/utils/checkpoint.py", 1, "unpack_hook"), BACKWARD, USER]
    assert (told_by(frames(again)).account, told_by(frames(again)).phase) == ("activations", "backward")


def test_frames_of_cpp_tell_the_backward():
    told = told_by(frames([("??", 0, "torch::autograd::Engine::evaluate_function"), ("??", 0, "start_thread")]))
    assert (told.account, told.phase, told.place) == ("gradients", "backward", None)


def test_a_temporary_of_the_update_is_no_state():
    update = [(f"{SITE}/optim/adam.py", 600, "_multi_tensor_adam"), (f"{SITE}/optim/adam.py", 230, "step"), USER]
    assert told_by(frames(update)).account == "temporary"


def test_every_reserved_byte_is_booked_once(booked):
    snapshot = booked(
        segment(
            block(1024, 1000, stack=STACKS["parameters"]),
            block(2048, 0, "inactive"),
            block(512, 512, "active_awaiting_free"),
            block(4096, 4096, stack=STACKS["activations"]),
            total=8192,
        ),
        segment(block(2**20, 0, "inactive"), address=0x7F00_1000_0000),
        segment(block(512, 4, stack=STACKS["unknown"]), block(512, 512), address=0x7F00_2000_0000),
    )
    assert snapshot.reserved_bytes == 8192 + 2**20 + 1024
    assert snapshot.requested_bytes == 1000 + 4096 + 4 + 512
    assert snapshot.rounding_bytes == 24 + 508
    assert (snapshot.awaiting_bytes, snapshot.fragmented_bytes, snapshot.cached_bytes) == (512, 2048, 2**20)
    assert snapshot.uncovered_bytes == 8192 - 1024 - 2048 - 512 - 4096
    assert {each.account: each.bytes for each in snapshot.held} == {
        "activations": 4096,
        "parameters": 1000,
        "unknown": 516,
    }
    assert (snapshot.unattributed_bytes, snapshot.unattributed_blocks, snapshot.without_stack_blocks) == (516, 2, 1)
    assert (snapshot.largest[0].bytes, snapshot.largest[0].place.line) == (4096, 12)
    first = snapshot.emptiest[0]
    assert (first.free_bytes, first.largest_free_bytes) == (2**20, 2**20)


def test_the_last_refused_allocation_is_told(booked):
    oom = {"action": "oom", "size": 999, "device_free": 77, "stream": 0, "frames": frames(STACKS["activations"])}
    snapshot = booked(segment(block(512, 512)), traces=[[{**oom, "size": 1}, oom]])
    assert (snapshot.refused.asked_bytes, snapshot.refused.device_free_bytes) == (999, 77)
    assert snapshot.refused.place.line == 12


def test_a_category_of_the_trace_is_more_certain_than_the_stack(booked):
    event = {"action": "alloc", "addr": 0x7F00_0000_0000, "size": 512, "category": "PARAMETER", "frames": []}
    snapshot = booked(segment(block(512, 512, stack=STACKS["activations"])), traces=[[event]])
    assert [each.account for each in snapshot.held] == ["parameters"]


def test_snapshots_of_torch_2_0_have_a_history(booked):
    old = {
        "size": 512,
        "state": "active_allocated",
        "history": [{"real_size": 500, "frames": frames(STACKS["optimizer"])}],
    }
    snapshot = booked({**segment(), "blocks": [old], "total_size": 512})
    assert (snapshot.held[0].account, snapshot.held[0].bytes, snapshot.rounding_bytes) == ("optimizer", 500, 12)


def test_the_snapshot_of_a_plan_has_the_accounts_of_the_plan(tmp_path):
    recipe = surefoot.load_recipe("regression")
    planned = surefoot.plan(recipe, snapshot=str(tmp_path / "plan.pickle"))
    held = {each.account: 0 for each in booked_snapshot(tmp_path / "plan.pickle").held}
    for each in booked_snapshot(tmp_path / "plan.pickle").held:
        held[each.account] += each.bytes
    for account in ("parameters", "optimizer"):
        assert held.get(account, 0) == planned.steady.tally.total(f"memory/{account}")


# ------------------------------------------------------------------------------------------- hostile files


class Touches:
    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __reduce__(self):
        return os.mkdir, (self.file,)


def test_a_pickle_that_names_a_function_is_refused_and_nothing_of_it_runs(tmp_path):
    file, made = tmp_path / "bad.pickle", tmp_path / "made"
    file.write_bytes(pickle.dumps({"segments": [Touches(made)]}))
    with pytest.raises(RunError, match=r"asks to load \w+\.mkdir.*nothing of it was run"):
        booked_snapshot(file)
    assert not made.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a pickled memory snapshot: EOFError"),
        (b"hello", "not a pickled memory snapshot"),
        (pickle.dumps([1]), "no list of segments"),
        (pickle.dumps({"segments": [{"blocks": [{"state": "odd"}]}]}), "has the state 'odd'"),
        (b"\x80\x04Pid\n.", "refers to objects outside"),
        (b"\x80\x04\x82\x01.", "not a pickled memory snapshot"),  # an extension code
        (b"\x80\x02]r\xff\xff\xff\x7f.", "has 9 B and takes more than 256.00 MiB of memory to unpickle"),
        (b"\x80\x04}" + b")" + b"2\x86" * 60 + b"Ns.", "cannot be unpickled in 3 seconds"),  # a hash of 2**60 tuples
    ],
)
def test_other_files_are_refused_in_one_sentence(tmp_path, content, said):
    file = tmp_path / "bad.pickle"
    file.write_bytes(content)
    with pytest.raises(RunError, match=said):
        booked_snapshot(file)


def test_a_small_file_that_lists_one_block_very_often_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("surefoot.debug.memory.snapshot.MOST_BLOCKS", 1000)
    file, one = tmp_path / "many.pickle", segment(*[block(512, 512)] * 50)
    file.write_bytes(pickle.dumps({"segments": [one] * 50}))
    with pytest.raises(RunError, match="more than 1,000 blocks"):
        booked_snapshot(file)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("surefoot.debug.memory.snapshot_file.MOST_BYTES", 10)
    file = tmp_path / "large.pickle"
    file.write_bytes(bytes(11))
    with pytest.raises(RunError, match="11 B, more than the 10 B that are read"):
        booked_snapshot(file)


def test_the_command_prints_accounts_free_memory_and_lines(tmp_path, monkeypatch, capsys):
    file = tmp_path / "snapshot.pickle"
    held = segment(block(1024, 1000, stack=STACKS["activations"]), block(2048, 0, "inactive"))
    file.write_bytes(pickle.dumps({"segments": [held], "device_traces": [[]]}))
    monkeypatch.setattr(sys, "argv", ["surefoot", "explain", str(file)])
    with suppress(SystemExit):
        cli.main()
    said = " ".join(capsys.readouterr().out.split())
    assert "3.00 KiB reserved in 1 segment, 1000 B of it asked for" in said
    assert "activations forward 1000 B 100.0% linear" in said
    assert "fragmented 2.00 KiB free, in segments that are in use" in said
    assert "model.py:12 in forward" in said


def test_a_run_that_did_not_run_out_of_memory_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["surefoot", "explain", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "did not end out of memory" in " ".join(capsys.readouterr().err.split())
