"""copy-never-updated: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.models.shadows import average, follow, learned, q_network, states
from tests.checks.programs import named, numbers, twin

pytestmark = pytest.mark.sweep


@twin("copy-never-updated")
def _(buggy):
    online = q_network()
    target = copy.deepcopy(online)
    return learned(online, target, lambda step: buggy or follow(target, online, 0.1))


def test_a_target_of_its_own_start():
    online, target = q_network(), q_network()
    nn.init.normal_(target[0].weight)
    assert named(learned(online, target, lambda step: None)) == ["copy-never-updated"]


@pytest.mark.parametrize("synced", [True, False])
def test_a_target_that_is_synced_late(synced):
    online = q_network()
    target = copy.deepcopy(online)
    found = learned(online, target, lambda step: synced and step == 14 and target.load_state_dict(online.state_dict()))
    assert named(found) == ([] if synced else ["copy-never-updated"])


def test_too_few_updates_to_tell():
    online = q_network()
    target = copy.deepcopy(online)
    assert named(learned(online, target, lambda step: None, steps=8)) == []


@pytest.mark.parametrize(("name", "reported"), [("ema", True), ("reference", False), ("initial", False)])
def test_an_average_is_told_by_its_name(name, reported):
    model = q_network(outputs=1)
    kept = {name: copy.deepcopy(model)}
    holder = type("Holder", (), {})()
    setattr(holder, name, kept[name])
    found = average(model, lambda step: None, evaluated=getattr(holder, name))
    assert named(found) == (["copy-never-updated"] if reported else [])


@pytest.mark.parametrize("updated", [True, False])
def test_an_average_in_a_table_that_is_loaded_for_evaluation(updated):
    model = q_network(outputs=1)
    shadow = {name: each.detach().clone() for name, each in model.named_parameters()}
    evaluated = q_network(outputs=1)

    def after(step):
        for name, each in model.named_parameters():
            if updated:
                shadow[name] = 0.9 * shadow[name] + 0.1 * each.detach()
        evaluated.load_state_dict(shadow)

    assert named(average(model, after, evaluated=evaluated)) == ([] if updated else ["copy-never-updated"])


def test_a_random_target_that_a_network_predicts():
    """Random network distillation: the target is given the same states."""
    predictor, target = q_network(), q_network()
    nn.init.normal_(target[0].weight)
    optimizer = torch.optim.SGD(predictor.parameters(), lr=0.05)
    with surefoot.watch() as seen:
        for step in range(16):
            with torch.no_grad():
                wanted = target(states(step))
            optimizer.zero_grad()
            F.mse_loss(predictor(states(step)), wanted).backward()
            optimizer.step()
    assert named(seen.findings) == []


@pytest.mark.parametrize("trained", [True, False])
def test_a_teacher_that_was_trained_before(trained):
    student = q_network()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)

    def learn(step, teacher):
        optimizer.zero_grad()
        loss = F.mse_loss(student(states(step)), states(step)[:, :2])
        if teacher is not None:
            with torch.no_grad():
                belief = teacher(states(step) + 0.1 * numbers(16, 4, seed=step + 50))
            loss = loss + F.mse_loss(student(states(step)), belief)
        loss.backward()
        optimizer.step()

    with surefoot.watch() as seen:
        for step in range(4 if trained else 0):
            learn(step, None)
        teacher = copy.deepcopy(student)
        for step in range(16):
            learn(step, teacher)
    assert named(seen.findings) == ([] if trained else ["copy-never-updated"])
