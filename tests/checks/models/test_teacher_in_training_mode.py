"""teacher-in-training-mode: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.models.shadows import follow, q_network, states
from tests.checks.programs import named, twin

pytestmark = pytest.mark.sweep


def taught(teacher, student=None, after=lambda: None, *, graded=False):
    student = student or q_network()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    with surefoot.watch() as seen:
        for step in range(8):
            with torch.set_grad_enabled(graded):
                belief = teacher(states(step)).softmax(-1)
            optimizer.zero_grad()
            F.cross_entropy(student(states(step)), belief).backward()
            optimizer.step()
            after()
    return seen.findings


def wide(*extra):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 32), *extra, nn.ReLU(), nn.Linear(32, 2))


@twin("teacher-in-training-mode")
def _(buggy):
    return taught(wide(nn.Dropout(0.2)).train(buggy))


def test_batch_norm_and_frozen_parameters():
    assert named(taught(wide(nn.BatchNorm1d(32)))) == ["teacher-in-training-mode"]
    frozen = wide(nn.Dropout(0.2)).requires_grad_(False)
    assert named(taught(frozen, graded=True)) == ["teacher-in-training-mode"]
    assert named(taught(wide(nn.LayerNorm(32)))) == []


def test_a_teacher_that_follows_its_student():
    student = q_network(nn.Dropout(0.2))
    teacher = copy.deepcopy(student)
    assert named(taught(teacher, student, lambda: follow(teacher, student, 0.1))) == []


def test_one_batch_twice_for_its_randomness():
    teacher = wide(nn.Dropout(0.2))

    def twice(x):
        return (teacher(x) + teacher(x)) / 2

    assert named(taught(twice)) == []
