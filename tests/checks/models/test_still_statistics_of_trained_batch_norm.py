"""still-statistics-of-trained-batch-norm: the buggy and the fixed program, and what looks like it and is fine."""

from torch import nn

from tests.checks.programs import Module, named, plain, twin


def model():
    return Module(
        lambda self, x: self.end(self.body(x)),
        body=lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()),
        end=lambda: nn.Linear(8, 2),
    )


@twin("still-statistics-of-trained-batch-norm")
def _(buggy):
    made = model()
    made.body.train(not buggy)
    return plain(made)


def test_norms_alone_in_evaluation_mode_and_a_frozen_body_are_fine():
    alone, frozen = model(), model()
    alone.body[1].eval()
    frozen.body.requires_grad_(False).eval()
    assert named(plain(alone)) == []
    assert named(plain(frozen)) == []
