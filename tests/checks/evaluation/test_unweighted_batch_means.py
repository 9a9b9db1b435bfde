"""unweighted-batch-means: the buggy and the fixed program."""

import torch.nn.functional as F

from tests.checks.evaluation.programs import measured
from tests.checks.programs import twin


@twin("unweighted-batch-means")
def _(buggy):
    def alike(model, valid):
        losses = [F.cross_entropy(model(x), y).item() for x, y in valid]
        return sum(losses) / len(losses)

    def weighted(model, valid):
        losses = [F.cross_entropy(model(x), y).item() * len(x) for x, y in valid]
        return sum(losses) / len(valid.dataset)

    return measured(alike if buggy else weighted)
