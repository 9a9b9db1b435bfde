"""A plan of one layer and a batch: `python examples/plan_a_module.py`."""

import torch
from torch import nn

import surefoot

plan = surefoot.plan(lambda: nn.TransformerEncoderLayer(512, 8), torch.zeros(16, 128, 512))
print(plan.steady.peak)
