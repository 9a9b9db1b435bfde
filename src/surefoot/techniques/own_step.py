"""Own step: an update that the recipe writes itself, with several networks and optimizers.

The recipe's `step(networks, optimizers, batch)` calls backward and the optimizers in its own order. surefoot seeds it,
saves everything that the next one depends on, and lets the recipe's schedule set the learning rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

import torch

from surefoot.errors import RecipeError
from surefoot.recipe.returned import checked_optimizer


class Optimizers(torch.optim.Optimizer):
    """Several optimizers as one: their groups, their state, and a state dict like that of any optimizer.

    It is never stepped: the recipe steps each of them.
    """

    def __init__(self, named: Mapping[str, torch.optim.Optimizer]) -> None:
        self.named = dict(named)
        try:
            super().__init__([group for each in self.named.values() for group in each.param_groups], {})
        except ValueError as error:
            raise RecipeError(f"optimizer(networks) gave one parameter to two optimizers: {error}") from error

    @property  # type: ignore[override]
    def state(self) -> MutableMapping[Any, Any]:
        """The state of every parameter, wherever it is held."""
        return _States(self.named)

    @state.setter
    def state(self, _: Any) -> None:
        """Does nothing: each optimizer holds its own."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each in self.named.values():
            each.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The states of all, with parameters numbered through."""
        state: dict[Any, Any] = {}
        groups: list[dict[str, Any]] = []
        first = 0
        for each in self.named.values():
            packed = each.state_dict()
            state |= {_moved(number, first): values for number, values in packed["state"].items()}
            groups += [
                {**group, "params": [number + first for number in group["params"]]} for group in packed["param_groups"]
            ]
            first += sum(len(group["params"]) for group in packed["param_groups"])
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Gives each optimizer its part."""
        groups, first = list(state_dict["param_groups"]), 0
        for each in self.named.values():
            mine, groups = groups[: len(each.param_groups)], groups[len(each.param_groups) :]
            last = first + sum(len(group["params"]) for group in mine)
            part = {
                _moved(number, -first): values
                for number, values in state_dict["state"].items()
                if not isinstance(number, int) or first <= number < last
            }
            own = [{**group, "params": [number - first for number in group["params"]]} for group in mine]
            each.load_state_dict({"state": part, "param_groups": own})
            first = last
        self.param_groups = [group for each in self.named.values() for group in each.param_groups]


class Scheduler(Protocol):
    """What is stepped and saved."""

    def step(self) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class Schedulers:
    """One scheduler for each optimizer, stepped together."""

    def __init__(self, each: Sequence[Scheduler]) -> None:
        self._each = each

    def step(self) -> None:
        for scheduler in self._each:
            scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return {str(number): scheduler.state_dict() for number, scheduler in enumerate(self._each)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for number, scheduler in enumerate(self._each):
            scheduler.load_state_dict(state_dict[str(number)])


class _States(MutableMapping[Any, Any]):
    """The states of several optimizers by parameter."""

    def __init__(self, named: Mapping[str, torch.optim.Optimizer]) -> None:
        self._named = named
        self._owner = {
            parameter: each for each in named.values() for group in each.param_groups for parameter in group["params"]
        }

    def __getitem__(self, key: Any) -> Any:
        return self._owner[key].state[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._owner[key].state[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._owner[key].state[key]

    def __iter__(self) -> Iterator[Any]:
        return (key for each in self._named.values() for key in each.state)

    def __len__(self) -> int:
        return sum(len(each.state) for each in self._named.values())


def _moved(key: Any, by: int) -> Any:
    return key + by if isinstance(key, int) else key


def optimizers_of(made: Any, name: str) -> Optimizers:
    """What a recipe with its own step returned as its optimizers: one, or a dict of them."""
    if not isinstance(made, Mapping):
        return Optimizers({"": checked_optimizer(made, name, closures=True)})
    if not made or not all(isinstance(key, str) for key in made):
        raise RecipeError(f"{name}: optimizer(networks) returned a dict without names; name each optimizer")
    return Optimizers({key: checked_optimizer(each, name, closures=True) for key, each in made.items()})


def handed_out(optimizers: Optimizers) -> torch.optim.Optimizer | dict[str, torch.optim.Optimizer]:
    """The optimizers as the recipe returned them."""
    return optimizers.named.get("") or dict(optimizers.named)


def losses_of(made: Any, name: str) -> dict[str, torch.Tensor]:
    """The losses that a step returned, by name. A single one is called `loss`."""
    losses = made if isinstance(made, Mapping) else {"loss": made}
    for key, value in losses.items():
        if not isinstance(key, str) or not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise RecipeError(
                f"{name}: step(networks, optimizers, batch) returned {type(value).__name__} as {key!r}; "
                "it must return a tensor of one number, or a dict of names and such tensors"
            )
    if not losses:
        raise RecipeError(f"{name}: step(networks, optimizers, batch) returned no loss")
    return {key: value.detach() for key, value in losses.items()}
