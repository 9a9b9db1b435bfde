"""profile: where the time went adds up, what disturbs a step is named, and nothing stays behind."""

import json
import time
from dataclasses import replace

import pytest
import torch

import surefoot
from surefoot.costs.diagnosis import diagnose
from surefoot.costs.ledgers import ledger_of
from surefoot.reports.gather import signs_of
from surefoot.ways.profile import compare


def assert_it_adds_up(recipe: surefoot.Recipe, profile: surefoot.Profile) -> None:
    """Time by module to the step, booked memory to what the allocator saw, or the difference has a name."""
    assert profile.traced.total("time") == pytest.approx(profile.mean_step_seconds, rel=0.03)
    assert profile.traced.total("time") == pytest.approx(profile.clock.total("seconds"))
    seen = profile.allocated_peak_bytes
    if seen is not None and seen != pytest.approx(profile.steady.peak.peak_bytes, rel=0.02):
        entries = {entry.account: entry for entry in ledger_of(surefoot.plan(recipe), profile).entries}
        assert entries["allocated/peak"].attribution
        assert entries["allocated/peak"].cause


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "words"),
    [("gpt", []), ("gpt", ["layers=6", "width=384", "context=256"]), ("fashion", []),
     ("fashion", ["network=convolutional"])],
)  # fmt: skip
def test_a_step_of_full_size_adds_up(name: str, words: list[str], fashion_folder):
    folder = [f"folder={fashion_folder}"] if name == "fashion" else []
    recipe = surefoot.load_recipe(name, [*words, *folder])
    assert_it_adds_up(recipe, surefoot.profile(recipe, timed_steps=3))


@pytest.mark.parametrize("name", ["gpt", "fashion-convolutional"])
def test_time_by_module_adds_up_to_the_step(name: str, small_recipe, tmp_path):
    recipe = small_recipe(name)
    file = tmp_path / 'a "trace" of\x1b[31m.json'  # torch alone writes no valid JSON into such a file
    profile = surefoot.profile(recipe, timed_steps=3, trace=str(file))
    assert_it_adds_up(recipe, profile)
    modules = {account.name.split("/")[2] for account in profile.traced.accounts}
    assert modules >= ({"blocks.0.mlp.0", "head"} if name == "gpt" else {"0", "12"})
    backward = {account.name.split("/")[2] for account in profile.traced.accounts if "/backward/" in account.name}
    assert backward >= ({"blocks.0.mlp.0", "head"} if name == "gpt" else {"0", "12"})
    kept = {event.get("name") for event in json.loads(file.read_text())["traceEvents"]}
    assert kept >= {"phase: forward", "phase: backward", "phase: update", "surefoot.step"}
    assert kept >= modules - {"(outside modules)"}
    assert len(profile.data_seconds) == 3
    assert 0 < profile.waiting < 1


def test_a_timeline_ends_in_the_peak_that_was_booked(small_recipe):
    steady = surefoot.profile(small_recipe("gpt"), timed_steps=1).steady
    line = steady.timeline
    assert sum(amounts[line.peak] for amounts in line.accounts.values()) == steady.peak.peak_bytes
    assert max(map(sum, zip(*line.accounts.values(), strict=True))) == steady.peak.peak_bytes
    assert line.phases[line.peak] == steady.peak.phase
    assert len(line.phases) <= 100


def first_finding(recipe: surefoot.Recipe) -> str:
    found = diagnose(signs_of(surefoot.profile(recipe, timed_steps=2)))
    return found[0].check if found else ""


def test_a_clean_recipe_needs_no_change(small_recipe):
    recipe = small_recipe("cruncher")
    assert first_finding(replace(recipe, micro_batch_size=64)) in ("", "waiting-for-data")  # tiny steps


def test_a_slow_loader_is_the_first_thing_to_change(small_recipe):
    recipe = small_recipe("gpt")
    plain = recipe.data()

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return len(plain)

        def __getitem__(self, index):
            time.sleep(0.05)  # time itself: a loader that is slow
            return plain[index]

    assert first_finding(replace(recipe, data=Slow)) == "waiting-for-data"


def test_an_item_in_every_micro_batch_is_the_first_thing_to_change(small_recipe):
    recipe = small_recipe("gpt")
    losses = []

    def loss(model, batch):
        total, count = recipe.loss(model, batch)
        losses.append(total.item())
        return total, count

    profile = surefoot.profile(replace(recipe, loss=loss), timed_steps=2)
    found = diagnose(replace(signs_of(profile), data_seconds=0.0))  # on a busy machine a tiny step may wait for data
    assert found[0].check == "value-asked-in-every-micro-batch"
    assert found[0].where.startswith("test_profile.py:")


def test_a_growing_list_of_losses_is_the_first_thing_to_change(small_recipe):
    recipe = small_recipe("gpt")
    losses = []

    def loss(model, batch):
        total, count = recipe.loss(model, batch)
        losses.append(total)
        return total, count

    assert first_finding(replace(recipe, loss=loss)) == "tensors-kept-from-step-to-step"


def test_two_sides_are_timed_in_turns(small_recipe, monkeypatch):
    """Which goes first alternates; the seconds are made up, so that a busy machine has no say."""
    recipe, order = small_recipe("cruncher"), []
    slower = replace(recipe, max_grad_norm=1e9)

    def lasting(step):
        outcome = step()
        clipped = outcome.grad_norm is not None and step.__defaults__[0].recipe.max_grad_norm == 1e9
        order.append("after" if clipped else "before")
        return 2.0 if clipped else 1.0

    monkeypatch.setattr("surefoot.ways.profile._lasting", lasting)
    found = compare(recipe, slower, rounds=8)
    assert order[:4] == ["after", "before", "before", "after"]
    assert (found.ratio, found.low, found.high) == (2.0, 2.0, 2.0)
    assert found.differs
