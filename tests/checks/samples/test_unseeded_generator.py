"""unseeded-generator: the buggy and the fixed program."""

import random

import torch

from tests.checks.programs import mlp, plain, twin


@twin("unseeded-generator")
def _(buggy):
    before = random.getstate()

    def seeded_and_drawn(step):
        if step == 0:
            torch.manual_seed(0)
            if not buggy:
                random.seed(0)
        random.random()

    try:
        return plain(mlp(), after=seeded_and_drawn)
    finally:
        random.setstate(before)
