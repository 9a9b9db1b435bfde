"""kl-div-mean-over-elements: the buggy and the fixed program."""

import warnings

import torch.nn.functional as F

from tests.checks.programs import mlp, numbers, plain, twin


def quietly(function, *args, **options):
    """Without the warning that torch gives of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


@twin("kl-div-mean-over-elements")
def _(buggy):
    target, reduction = numbers(8, 2, seed=1).softmax(-1), "mean" if buggy else "batchmean"
    return plain(mlp(), y=target, loss=lambda h, y: quietly(F.kl_div, h.log_softmax(-1), y, reduction=reduction))
