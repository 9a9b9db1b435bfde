"""detached-loss: the buggy and the fixed program, variants, and what looks like it and is fine."""

import torch
import torch.nn.functional as F

from tests.checks.programs import mlp, plain, twin


@twin("detached-loss")
def _(buggy):
    def rebuilt(h, y):
        loss = F.cross_entropy(h, y)
        return torch.tensor(loss.item(), requires_grad=True) if buggy else loss

    return plain(mlp(), loss=rebuilt)


def cut(logits, target):
    return F.cross_entropy(logits.detach().requires_grad_(), target)


def test_a_graph_cut_between_model_and_loss_is_a_detached_loss():
    assert [finding.check for finding in plain(mlp(), loss=cut).findings] == ["detached-loss"]
