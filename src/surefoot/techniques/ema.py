"""EMA: an exponential moving average of the trained weights, for evaluations and for the weights that are kept.

After every update, `average = ema x average + (1 - ema) x weight`, as `torch.optim.swa_utils.AveragedModel` does with
`get_ema_multi_avg_fn(ema)`. The first update sets the averages to the weights. Frozen parameters have no average, and
buffers are those of the model. Averages of bfloat16 weights are in float32: they would not move otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from surefoot.recipe.recipe import Recipe
from surefoot.trees import local_part


class Averages:
    """The average of each trained parameter, by name. On many ranks, each holds the averages of its shards."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self._trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self.tensors = {name: _copied(each.detach()) for name, each in self._trained.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Call it after every update."""
        if not self.updates:
            self.restart()
        for name, parameter in self._trained.items():
            average = local_part(self.tensors[name])
            average.lerp_(local_part(parameter).to(average.dtype), 1 - self.decay)
        self.updates += 1

    @torch.no_grad()
    def restart(self) -> None:
        """Sets the averages to the weights as they are."""
        self.updates = 0
        for name, parameter in self._trained.items():
            local_part(self.tensors[name]).copy_(local_part(parameter))

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """A context in which the model has the averages as its weights."""
        kept = {name: local_part(parameter.detach()).clone() for name, parameter in self._trained.items()}
        self.copy_to(self._trained)
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in self._trained.items():
                    local_part(parameter).copy_(kept[name])

    @torch.no_grad()
    def copy_to(self, parameters: dict[str, nn.Parameter]) -> None:
        """Fills parameters with the averages of the same names."""
        for name, average in self.tensors.items():
            local_part(parameters[name]).copy_(local_part(average))


def _copied(weight: torch.Tensor) -> torch.Tensor:
    exact = torch.promote_types(weight.dtype, torch.float32)
    return weight.clone() if weight.dtype == exact else weight.to(exact)


def explain(model: nn.Module, recipe: Recipe) -> list[str]:
    """One sentence: what is averaged, and what for."""
    if recipe.ema is None:
        return []
    count = sum(each.numel() for each in model.parameters() if each.requires_grad)
    return [f"ema={recipe.ema:g}: evaluations and kept weights use the moving averages of {count:,} parameters"]
