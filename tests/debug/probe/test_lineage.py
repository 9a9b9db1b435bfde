"""Lineage: inputs meet parameters on their way to the loss, targets do not."""

import torch
from torch import nn

from surefoot.debug.probe.lineage import Lineage, role
from surefoot.debug.probe.said import Said

X, Y = torch.randn(8, 4), torch.randint(0, 3, (8,))


def roles(loss, **batch) -> dict[str, str]:
    """The role of each leaf in a loss of a model."""
    with Lineage(on=True) as lineage:
        batch = {name: leaf.clone() for name, leaf in batch.items()}
        lineage.enters("loader", batch)
        lineage.losses(loss(**batch))
    return {name: role(lineage.reached.get(f"loader:['{name}']", set())) for name in batch}


def test_inputs_and_targets():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    assert roles(lambda x, y: nn.functional.cross_entropy(model(x), y), x=X, y=Y) == {"x": "input", "y": "target"}


def test_a_batch_that_is_its_own_target_is_both():
    model = nn.Linear(4, 4)
    assert roles(lambda x: (model(x) - x).square().mean(), x=X) == {"x": "both"}


def test_a_leaf_that_reaches_no_loss_plays_no_role():
    model = nn.Linear(4, 3)
    found = roles(lambda x, y, place: nn.functional.cross_entropy(model(x), y), x=X, y=Y, place=torch.arange(8))
    assert found["place"] == "none"


def test_a_mask_inside_the_model_is_an_input_and_one_of_the_loss_a_target():
    embed, head = nn.Embedding(3, 4), nn.Linear(4, 3)
    inside = roles(lambda y, mask: head((embed(y) * mask[:, None]).cumsum(0)).sum(), y=Y, mask=torch.ones(8))
    outside = roles(lambda y, mask: (head(embed(y)).sum(1) * mask).sum(), y=Y, mask=torch.ones(8))
    assert inside["mask"] == "input"
    assert outside["mask"] == "target"


def test_labels_inside_a_recurrent_models_own_loss_are_targets():
    rnn, head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 3)

    def loss(x, y):
        states, _ = rnn(x[:, None])
        return nn.functional.cross_entropy(head(states[:, -1]).float(), y.to(torch.int64))

    assert roles(loss, x=X, y=Y) == {"x": "input", "y": "target"}


def test_numbers_are_heard_with_the_line_that_prints_them():
    said = Said()
    print("epoch 3: loss 0.5, lr 1e-3, took 3.5s, val_acc=nan", file=said)
    print("no number here, v2 and recall@1 neither", file=said)
    print("10%|#\rstep 7 12", end="", file=said)
    said.finish()
    assert [each.text for each in said.lines] == ["epoch #: loss #, lr #, took 3.5s, val_acc=#", "#%|#", "step # #"]
    assert said.lines[0].numbers[:3] == (3.0, 0.5, 1e-3)
    assert said.lines[0].where.startswith(__file__)
