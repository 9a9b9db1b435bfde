"""same-randomness-every-epoch: the buggy and the fixed program."""

import numpy as np
from torch.utils.data import DataLoader

from tests.checks.loaders import trained
from tests.checks.programs import twin
from tests.checks.samples.programs import Noisy


def constant_seed(worker):
    np.random.seed(42 + worker)


@twin("same-randomness-every-epoch")
def _(buggy):
    init = constant_seed if buggy else None
    return trained(DataLoader(Noisy("global"), 8, shuffle=True, num_workers=2, worker_init_fn=init), passes=1)
