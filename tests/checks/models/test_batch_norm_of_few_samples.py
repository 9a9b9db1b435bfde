"""batch-norm-of-few-samples: the buggy and the fixed program."""

from torch import nn

from tests.checks.programs import X, Y, mlp, plain, twin


@twin("batch-norm-of-few-samples")
def _(buggy):
    few = 2 if buggy else 8
    return plain(mlp(nn.BatchNorm1d(8)), x=X[:few], y=Y[:few])
