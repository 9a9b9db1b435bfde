"""loss-of-the-last-batch: the buggy and the fixed program."""

import torch.nn.functional as F

from tests.checks.evaluation.programs import measured
from tests.checks.programs import twin


@twin("loss-of-the-last-batch")
def _(buggy):
    def last(model, valid):
        for x, y in valid:
            loss = F.cross_entropy(model(x), y).item()
        return loss

    def whole_sum(model, valid):
        loss = 0.0
        for x, y in valid:
            loss += F.cross_entropy(model(x), y, reduction="sum").item()
        return loss / len(valid.dataset)

    return measured(last if buggy else whole_sum)
