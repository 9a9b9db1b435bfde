"""benchmarked-kernels: the buggy and the fixed program."""

import torch

from tests.checks.programs import mlp, plain, twin


@twin("benchmarked-kernels")
def _(buggy):
    try:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = buggy
        return plain(mlp())
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False
