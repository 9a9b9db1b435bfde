"""idle-accelerator: the buggy and the fixed program."""

from unittest.mock import patch

import torch

from tests.checks.programs import mlp, plain, twin


@twin("idle-accelerator")
def _(buggy):
    there = torch.device("cuda") if buggy else None
    with patch.object(torch.accelerator, "current_accelerator", lambda check_available=False: there):
        return plain(mlp())
