"""The types of what torch hands to observers."""

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, Dataset

Args = tuple[Any, ...]
"""The positional arguments of a call."""
Kwargs = dict[str, Any]
"""Its arguments by name."""
Function = Callable[..., Any]
"""A function or method of torch's."""
AnyLoader = DataLoader[Any]
AnyDataset = Dataset[Any]
"""Whatever their samples are."""
