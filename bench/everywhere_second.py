"""Importing this makes the second device of the tests the default device of this process."""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parent.parent))
from tests import second_device

second_device.register()
torch.set_default_device(second_device.NAME)
