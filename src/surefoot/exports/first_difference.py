"""Finds the first module whose output an exported file computes otherwise."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.exports.outputs import difference, tensors


class Tapped(torch.nn.Module):
    """A network that returns the outputs of all its modules, by name, in the order in which they end."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network, self._seen = network, dict[str, torch.Tensor]()
        self._hooks = [
            module.register_forward_hook(self._tap(name)) for name, module in network.named_modules() if name
        ]

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        self._seen.clear()
        self._keep("the output", self.network(*args, **kwargs))
        return dict(self._seen)

    def close(self) -> None:
        """Removes the hooks from the network."""
        for hook in self._hooks:
            hook.remove()

    def _tap(self, name: str) -> Any:
        return lambda _, __, output: self._keep(name, output)

    def _keep(self, name: str, output: Any) -> None:
        for path, tensor in tensors(output).items():
            self._seen[f"{name}:{path}" if path else name] = tensor


def first_difference(expected: dict[str, torch.Tensor], got: Any, tolerance: float) -> str:
    """The name of the first module whose tensors differ by more than the tolerance; empty if none does."""
    for (name, here), there in zip(expected.items(), tensors(got).values(), strict=True):
        found = difference(here, there)
        if not found <= tolerance:
            return f"{name.partition(':')[0]} ({found:.2g})"
    return ""
