"""Programs that tests of several rules about losses share."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.programs import Module, X, mlp, named, numbers, plain


def ending(end):
    return Module(lambda self, x: end(self.body(x)), body=mlp)


ROWS = torch.arange(8)
YES = (X[:, :1] > 0).float()


def of_classes(loss, *last: nn.Module) -> list[str]:
    return named(plain(nn.Sequential(*mlp(), *last), loss=loss))


def of_one(loss, *last: nn.Module, y=YES) -> list[str]:
    return named(plain(nn.Sequential(*mlp(classes=1), *last), loss=loss, y=y))


def negative_likelihood(out, y):
    return -out.gather(1, y[:, None]).mean()


def one_hot(out, y):
    return -(F.one_hot(y, 2) * out.log_softmax(-1)).sum(-1).mean()


def binary(out, y):
    return -(y * F.logsigmoid(out) + (1 - y) * F.logsigmoid(-out)).mean()


TEACHER = numbers(8, 2, seed=1).softmax(-1)
