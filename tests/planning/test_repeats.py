"""Repeats: which blocks are alike, and a model with fewer of them."""

import torch
from torch import nn

from surefoot.planning.repeated_blocks import find_repeats


class Numbered(nn.Module):
    def __init__(self, position: int, heads: int = 8) -> None:
        super().__init__()
        self.position, self.heads, self.linear = position, heads, nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


def found(model: nn.Module) -> list[tuple[str, int, int, int]]:
    return [(run.name, run.first, run.times, run.kinds) for run in find_repeats(model, fewest=3).runs]


def test_a_run_begins_where_blocks_begin_to_be_alike():
    model = nn.Sequential(nn.Linear(8, 4), *(nn.Linear(4, 4) for _ in range(5)), nn.Linear(4, 2))
    assert found(model) == [("", 1, 5, 1)]


def test_a_block_may_know_its_own_position_and_another_number_may_be_equal_to_one():
    assert found(nn.ModuleList(Numbered(n) for n in range(12))) == [("", 0, 12, 1)]
    assert found(nn.ModuleList(Numbered(n + 1) for n in range(12))) == []


def test_attributes_tensors_and_functions_are_compared():
    alike, other = [Numbered(0) for _ in range(4)], [Numbered(0) for _ in range(4)]
    for block in alike:
        block.function, block.table, block.nested = torch.relu, torch.zeros(2), {"a": [1, 2.0]}
    for n, block in enumerate(other):
        block.nested = {"a": [1, 2.0 + n]}
    assert found(nn.ModuleList(alike)) == [("", 0, 4, 1)]
    assert found(nn.ModuleList(other)) == []


def test_kinds_that_take_turns_count_as_one():
    assert found(nn.Sequential(*(each for _ in range(4) for each in (nn.Linear(4, 4), nn.ReLU())))) == [("", 0, 4, 2)]


def test_frozen_hooked_and_tied_blocks_are_not_alike():
    frozen = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    frozen[1].requires_grad_(False)
    hooked = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    hooked[1].weight.register_hook(lambda gradient: gradient)
    tied = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    tied[3].weight = tied[0].weight
    assert found(frozen) == found(hooked) == found(tied) == found(nn.ModuleList([nn.Linear(4, 4)] * 4)) == []


def test_the_deepest_stack_is_taken_and_those_as_deep():
    parts = {"a": 4, "b": 6, "c": 6}
    model = nn.ModuleDict({name: nn.ModuleList(nn.Linear(4, 4) for _ in range(n)) for name, n in parts.items()})
    assert found(model) == [("b", 0, 6, 1), ("c", 0, 6, 1)]


def test_names_are_parted_at_the_block_and_nowhere_else():
    layers = [nn.Linear(2, 2), *(Numbered(n) for n in range(1, 5)), nn.Linear(2, 2)]
    repeats = find_repeats(nn.ModuleDict({"layers": nn.ModuleList(layers)}), fewest=3)
    assert repeats.split("layers.3.linear") == ("layers.{}.linear", (3,))
    assert repeats.split("layers.5.weight") == ("layers.{}.weight", (5,))  # in a shorter model it has another number
    assert repeats.split("layers.0.weight") == ("layers.0.weight", ())
    assert repeats.split("other.layers.1") == ("other.layers.1", ())
    assert repeats.split("layers") == ("layers", ())


def test_a_shortened_model_is_whole_again_afterwards():
    model = nn.Sequential(nn.Linear(8, 4), *(nn.Linear(4, 4) for _ in range(5)), nn.Linear(4, 2))
    before, last = list(model.named_children()), model[6]
    with find_repeats(model, fewest=3).shortened(2):
        assert len(model) == 4
        assert model[3] is last
        assert model(torch.zeros(1, 8)).shape == (1, 2)
    assert list(model.named_children()) == before
