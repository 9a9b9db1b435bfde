"""The types of what torch hands to observers."""

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, Dataset

Args = tuple[Any, ...]
"""The positional arguments of a call."""
Kwargs = dict[str, Any]
"""The keyword arguments of a call."""
Function = Callable[..., Any]
"""A function or method of torch."""
AnyLoader = DataLoader[Any]
AnyDataset = Dataset[Any]
"""A loader or data set with samples of any type."""
