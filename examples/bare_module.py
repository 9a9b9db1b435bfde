import torch
from torch import nn

import surefoot

recipe = surefoot.recipe_of(lambda: nn.TransformerEncoderLayer(512, 8), torch.zeros(16, 128, 512))
print(surefoot.plan(recipe).steady.peak)
