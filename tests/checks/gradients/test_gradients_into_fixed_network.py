"""gradients-into-fixed-network: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, mlp, named, numbers, sgd, twin

pytestmark = pytest.mark.sweep


@twin("gradients-into-fixed-network")
def _(buggy):
    online, target = mlp(), mlp()
    optimizer = sgd(online)
    with surefoot.watch(online, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            with torch.set_grad_enabled(buggy):
                wanted = 0.9 * target(X).amax(1)
            F.mse_loss(online(X).amax(1), 1.0 + wanted).backward()
            optimizer.step()
    return seen.findings


def test_networks_that_go_on_from_the_best_of_them_are_no_targets():
    rivals = [mlp(), mlp()]
    optimizers = [sgd(each) for each in rivals]
    batches = [numbers(8, 4, seed=n) for n in range(8)]
    with surefoot.watch() as seen:
        for n, x in enumerate(batches):
            for each, optimizer in zip(rivals, optimizers, strict=True):
                optimizer.zero_grad()
                F.cross_entropy(each(x), Y).backward()
                optimizer.step()
            if n % 3 == 0:
                rivals[1].load_state_dict(rivals[0].state_dict())
    assert named(seen.findings) == []


@pytest.mark.parametrize("copied", [True, False])
def test_copies_learn_by_hand_for_one_update(copied):
    model, other = mlp(), mlp()
    optimizer = sgd(model)
    with surefoot.watch() as seen:
        for step in range(4):
            optimizer.zero_grad()
            fast = copy.deepcopy(model) if copied else other
            F.cross_entropy(fast(X + step), Y).backward()
            for each, given in zip(model.parameters(), fast.parameters(), strict=True):
                each.grad = given.grad.clone()
            F.cross_entropy(model(X + step), Y).backward()
            optimizer.step()
    assert ("gradients-into-fixed-network" in named(seen.findings)) is not copied


@pytest.mark.parametrize("trained", [True, False])
def test_a_teacher_that_follows_by_hand_and_is_trained_all_the_same(trained):
    student, teacher = mlp(), mlp()
    teacher.requires_grad_(trained)
    optimizer = torch.optim.SGD([*student.parameters(), *(teacher.parameters() if trained else ())], lr=0.1)
    with surefoot.watch() as seen:
        for _ in range(5):
            optimizer.zero_grad()
            belief = teacher(X + 0.1).softmax(-1)
            F.cross_entropy(student(X), belief).backward()
            optimizer.step()
            with torch.no_grad():
                for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)
    assert named(seen.findings) == (["gradients-into-fixed-network"] if trained else [])


class Views(torch.nn.Module):
    """A network and its target inside of one model, whose optimizer holds both."""

    def __init__(self):
        super().__init__()
        self.online, self.target, self.predictor = mlp(), mlp(), torch.nn.Linear(2, 2)

    def forward(self, x, *, graded):
        with torch.set_grad_enabled(graded):
            wanted = self.target(x + 0.1)
        return F.mse_loss(self.predictor(self.online(x).relu()), wanted)


@pytest.mark.parametrize("graded", [True, False])
def test_a_target_inside_of_a_model(graded):
    model = Views()
    optimizer = sgd(model)
    with surefoot.watch() as seen:
        for step in range(6):
            optimizer.zero_grad()
            model(numbers(8, 4, seed=step), graded=graded).backward()
            optimizer.step()
            with torch.no_grad():
                for mine, theirs in zip(model.target.parameters(), model.online.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)
    assert named(seen.findings) == (["gradients-into-fixed-network"] if graded else [])
