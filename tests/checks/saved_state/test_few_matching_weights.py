"""few-matching-weights: the buggy and the fixed program, variants, and what looks like it and is fine."""

import io

import pytest
import torch
from torch import nn

import surefoot
from tests.checks.programs import found_by, mlp, twin
from tests.checks.saved_state.programs import adam, net, normed_net, step, through_a_file, train

pytestmark = pytest.mark.sweep


@twin("few-matching-weights")
def _(buggy):
    model = mlp()
    with surefoot.watch(model) as seen:
        prefix = "module." if buggy else ""
        state = {prefix + name: each.clone() for name, each in model.state_dict().items()}
        model.load_state_dict(state, strict=False)
    return seen.findings


class Coder(nn.Module):
    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x):
        return self.head(self.encoder(x))


def test_an_encoder_may_be_the_smaller_part_of_a_file_and_of_a_model():
    def found(names) -> list[str]:
        pretrained = Coder(decoder=nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 6)))
        kept = through_a_file({names(name): each for name, each in pretrained.state_dict().items()})
        with surefoot.watch() as seen:
            model = Coder(head=nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 2)))
            model.load_state_dict(kept, strict=False)
            train(model, adam(model))
        return found_by(seen)

    assert found(lambda name: name) == []


def test_names_that_do_not_match_are_told_by_their_shapes():
    with surefoot.watch() as seen:
        model = net()
        kept = through_a_file({f"module.{name}": each for name, each in net().state_dict().items()})
        model.load_state_dict(kept, strict=False)
        train(model, adam(model))
    assert "few-matching-weights" in found_by(seen)


@pytest.mark.parametrize("forgets", [True, False])
def test_weights_that_a_model_was_given_which_nobody_has_are_lost(forgets):
    with surefoot.watch() as seen:
        model = net()
        train(model, adam(model))
        kept = through_a_file({"weights": model.state_dict()})
        model = net()
        given = net() if forgets else model
        given.load_state_dict(kept["weights"])
        del given
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert found_by(seen) == (["few-matching-weights"] if forgets else [])


def begun_from(read, *, prefix="") -> list[str]:
    """What is said of a training that begins with a file."""
    model, file = normed_net(), io.BytesIO()
    torch.save({"weights": {prefix + name: each + 1 for name, each in model.state_dict().items()}}, file)
    file.seek(0)
    with surefoot.watch(model) as seen:
        read(model, torch.load(file))
        optimizer = adam(model)
        for _ in range(3):
            step(model, optimizer)
    return [each.check for each in seen.findings.findings]


def one_by_one(model, kept):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in kept["weights"]:
                parameter.copy_(kept["weights"][name])


def those_that_match(model, kept):
    own = model.state_dict()
    own.update({name: each for name, each in kept["weights"].items() if name in own})
    model.load_state_dict(own)


@pytest.mark.parametrize("read", [those_that_match, one_by_one])
def test_weights_of_a_file_that_match_no_name_are_missed_however_they_are_read(read):
    assert begun_from(read, prefix="module.") == ["few-matching-weights"]
    assert begun_from(read) == []


def whole_file(model, kept):
    model.load_state_dict(kept, strict=False)


def test_a_file_is_not_the_weights_in_it():
    assert begun_from(whole_file) == ["few-matching-weights"]
