"""Tensors that collect gradients are told apart by who they are, also where one has the id of another that is gone."""

import torch

from surefoot.checks.engine.autograd_graph import walk
from surefoot.checks.engine.scene import Scene
from surefoot.checks.loop.loose_leaves import LooseLeaves
from surefoot.events.phases import Phases


def test_a_tensor_with_the_id_of_one_that_is_gone_is_counted_anew():
    leaves = LooseLeaves(Scene(Phases()))
    gone, new = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for _ in range(3):
        leaves.graph_seen(walk([gone.sum()]))
    new.grad = torch.ones(2)
    leaves._leaves[id(new)] = leaves._leaves[id(gone)]  # as if it had been made where the other was
    leaves.graph_seen(walk([new.sum()]))
    assert new not in set(leaves.loose())
    leaves.graph_seen(walk([new.sum()]))
    assert any(each is new for each in leaves.loose())
