"""Time constants: the few numbers of the time model that are fitted to published runs, and how far off it then is.

`python bench/public_runs.py --write-constants` writes `time_constants.json`. Nothing else in a prediction is fitted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from surefoot.records.codec import from_plain


@dataclass(frozen=True)
class Spread:
    """How measured seconds relate to predicted ones: 80% of like runs took between `low` and `high` times as long.

    `middle` is 1 if the prediction lies between them. If like runs nearly all took longer, or shorter, it is the median
    of how much, and a prediction is multiplied by it.
    """

    low: float
    high: float
    runs: int
    sources: int
    of: str
    middle: float = 1.0


@dataclass(frozen=True)
class Constants:
    """The fitted numbers. `product_share` is by compute capability, of the fastest measured product of a device."""

    product_share: dict[str, float]
    memory_share: float
    """Of the memory bandwidth: what elementwise kernels reach as written."""
    fused_share: float
    """The same for kernels that `torch.compile` makes."""
    product_bytes_share: float
    """Of the time for the bytes of a matrix product: what its FLOPs do not hide."""
    host_seconds: float
    """What Python, autograd and the launch take for one operator on the host."""
    link_share: float
    """Of a link's bandwidth: what large messages reach."""
    beside_share: float
    """Of the time of a collective that computation hides: by how much it slows that computation."""
    spreads: dict[str, Spread] = field(default_factory=dict)


@cache
def constants() -> Constants:
    """The constants that every plan uses."""
    text = (files("surefoot.costs") / "time_constants.json").read_text(encoding="utf-8")
    found: Constants = from_plain(Constants, json.loads(text))
    return found
