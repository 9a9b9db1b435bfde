"""Rehearsals: each distinct call in its place, on a clock that the test controls, and a plan that adds them up."""

import time

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe, load_recipe, plan
from surefoot.errors import UnknownDevice, WorldError
from surefoot.hardware import Datasheet
from surefoot.hardware.here import keep_here
from surefoot.meters.operator_script import Call, Freed
from surefoot.planning.fake_step import Tracing
from surefoot.planning.timing.rehearse import Rehearsal, rehearse

BLOCKS = 6


def blocks(width=8, optimizer=torch.optim.SGD):
    return Recipe(
        model=lambda: nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(BLOCKS))),
        data=lambda: TensorDataset(torch.rand(8, width)),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: optimizer(parameters, lr=0.1),
        micro_batch_size=4,
    )


def script_of(recipe):
    with Tracing(recipe, script=True) as tracing:
        traced = tracing.traced()
    return traced.script


class Ticks:
    """A clock that goes on by one second whenever it is looked at."""

    def __init__(self):
        self.looks = 0

    def __call__(self):
        self.looks += 1
        return float(self.looks)


@pytest.fixture
def measured_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_here(
        Datasheet(
            "here",
            "",
            {},
            1 << 30,
            ("a test",),
            reached_flops={"fp32": 1e9, "bf16": 4e9},
            memory_bandwidth=1e9,
            kernel_seconds=1e-5,
            call_seconds={"forward": 1e-5, "backward": 1e-6, "update": 0.0},
        )
    )


def test_the_script_of_a_step_has_its_calls_in_order_and_what_is_freed():
    (_, steady) = script_of(blocks()).steps
    calls = [event for event in steady if isinstance(event, Call)]
    forward = [each.func.overloadpacket.__name__ for each in calls if each.phase == "forward"]
    assert forward == ["addmm", "relu"] * BLOCKS
    made = {operand.storage for each in calls for operand in each.results}
    freed = [event.storage for event in steady if isinstance(event, Freed)]
    assert len(freed) == len(set(freed))
    assert len(made.intersection(freed)) > BLOCKS  # activations and temporaries of the step go within it


def test_a_place_is_timed_once_a_round_and_stands_for_all_of_its_calls():
    script = script_of(blocks())
    timed = rehearse(script, clock=Ticks())
    assert sum(each.calls for each in timed) == sum(isinstance(event, Call) for event in script.steps[-1])
    (relu,) = [each for each in timed if each.operator == "relu"]
    assert (relu.phase, relu.module, relu.calls, relu.seconds) == ("forward", "*.*", BLOCKS, 1.0)
    assert {each.seconds for each in timed} == {1.0}


def test_what_is_not_near_a_timed_call_is_not_run(monkeypatch):
    script = script_of(blocks())
    places = {event.place for event in script.steps[-1] if isinstance(event, Call)}
    everything = sum(isinstance(event, Call) for event in script.steps[-1])

    def looks(warm_bytes):
        monkeypatch.setattr("surefoot.planning.timing.rehearse.WARM_BYTES", warm_bytes)
        clock = Ticks()
        Rehearsal(script, clock=clock).go_through()
        return clock.looks

    assert looks(0) == 2 * len(places) < 2 * everything
    assert looks(1) > looks(0)
    assert looks(1 << 30) <= 2 * everything


def test_a_rehearsal_holds_what_the_step_holds_and_no_more():
    script = script_of(blocks(optimizer=torch.optim.AdamW))
    rehearsal = Rehearsal(script, clock=Ticks())
    for _ in range(3):
        rehearsal.go_through()
        assert rehearsal._live
        assert not rehearsal._live.keys() & {event.storage for event in script.steps[-1] if isinstance(event, Freed)}


def test_a_larger_model_takes_longer():
    def seconds(width):
        timed = rehearse(script_of(blocks(width)), clock=time.process_time)
        return sum(each.calls * each.seconds for each in timed)

    assert seconds(512) > 2 * seconds(8)


def test_an_operator_that_noise_does_not_suit_has_no_time():
    script = script_of(blocks())
    events = script.steps[-1]
    first = next(event for event in events if isinstance(event, Call))
    broken = Call(**{**vars(first), "func": _Refuses(first.func), "signature": "refused"})
    script.steps[-1] = [broken if event is first else event for event in events]
    refused, *others = rehearse(script, clock=Ticks())
    assert refused.seconds is None
    assert {each.seconds for each in others} == {1.0}


class _Refuses:
    def __init__(self, func):
        self.overloadpacket = func.overloadpacket

    def __call__(self, *args, **kwargs):
        raise RuntimeError("not a probability")


def test_tokens_stay_what_they_were():
    recipe = Recipe(
        model=lambda: nn.Embedding(100, 4),
        data=lambda: TensorDataset(torch.arange(90, 98)),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=8,
    )
    script = script_of(recipe)
    (embedding,) = [
        event
        for event in script.steps[-1]
        if isinstance(event, Call) and event.func.overloadpacket is torch.ops.aten.embedding
    ]
    tokens = torch.empty(0, dtype=torch.int64).set_(script.known[embedding.args[1].storage])
    assert sorted(tokens.tolist()) == list(range(90, 98))


@pytest.mark.usefixtures("measured_machine")
def test_a_plan_of_a_measured_machine_adds_up():
    found = plan(load_recipe("regression"), measure=True, clock=Ticks()).time
    assert set(found.phases) >= {"forward", "backward", "update"}
    assert found.seconds == pytest.approx(sum(found.phases.values()))
    assert found.seconds == pytest.approx(sum(found.modules.values()))
    assert found.seconds == pytest.approx(sum(found.bounds.values()))


@pytest.mark.usefixtures("measured_machine")
def test_a_roofline_of_this_machine_is_a_plan_on_here():
    found = plan(load_recipe("regression"), on="here").time
    assert found.seconds > found.flops_only_seconds > 0
    with pytest.raises(WorldError, match="one of them"):
        plan(load_recipe("regression"), on="here", measure=True)


@pytest.mark.usefixtures("measured_machine")
def test_a_step_that_does_not_fit_this_machine_is_not_rehearsed():
    with pytest.raises(WorldError, match=r"a step takes 1\.\d+ GiB and this machine has 1\.00 GiB"):
        plan(blocks(width=6000), measure=True)


def test_a_machine_that_was_not_measured_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnknownDevice, match="surefoot hardware measure"):
        plan(load_recipe("regression"), measure=True)


def test_the_first_round_does_not_count():
    rehearsal = Rehearsal(script_of(blocks()), clock=Ticks())
    rehearsal.go_through()
    assert {each.seconds for each in rehearsal.timed()} == {None}
    rehearsal.go_through()
    assert {each.seconds for each in rehearsal.timed()} == {1.0}
