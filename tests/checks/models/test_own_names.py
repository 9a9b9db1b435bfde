"""Models of one class are told apart by the names that user code gives them."""

from dataclasses import replace

import torch
from torch import nn

import surefoot
from surefoot.checks.models.own_names import OwnNames


def pair():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2)), nn.Sequential(nn.Linear(2, 1))


def test_two_of_one_class_have_the_names_of_their_variables():
    maker, critic = pair()
    optimizer = torch.optim.SGD([*maker.parameters(), *critic.parameters()], 0.1)
    with surefoot.watch() as seen:
        for _ in range(3):
            critic(maker(torch.randn(8, 3))).mean().backward()
            optimizer.step()
    assert seen._watcher.models() == ("maker (Sequential)", "critic (Sequential)")
    found = seen.findings
    told = seen._watcher[OwnNames].apart
    one = found.findings[0]
    moved = told(replace(found, findings=(replace(one, where="Sequential 2", seen="Sequential: Sequential 2.0"),)))
    assert (moved.findings[0].where, moved.findings[0].seen) == (
        "critic (Sequential)",
        "maker (Sequential): Sequential 2.0",
    )


def test_one_alone_keeps_the_name_of_its_class():
    maker, _ = pair()
    with surefoot.watch() as seen:
        maker(torch.randn(8, 3))
    assert seen._watcher.models() == ("Sequential",)
