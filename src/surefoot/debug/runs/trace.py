"""Traces a step: notes every operation with its module, its line and a fingerprint of its results."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
import xxhash

from surefoot.events.callers import caller
from surefoot.events.phases import Phases
from surefoot.meters.meter import Meter, Operators, linear_as_ever
from surefoot.meters.work import does_nothing
from surefoot.records.trace import Operation, Trace
from surefoot.torch_inside.autograd import next_node, running_node
from surefoot.torch_inside.modes import aside
from surefoot.training.replay import bits_of
from surefoot.trees import tensors_in
from surefoot.world.device import wide

if TYPE_CHECKING:
    from typing_extensions import Self

TRACED = ("forward", "evaluate", "loss", "backward")


class Tracer(Meter):
    """Enter it around a step; `end_step()` is the trace. With `keep`, the results of that operation are kept."""

    def __init__(self, *, keep: int | None = None) -> None:
        self.phases = Phases()
        self.keep, self.kept = keep, list[torch.Tensor]()
        self._entered = ExitStack()
        self._forget()

    def __enter__(self) -> Self:
        operators = Operators([self], shards_seen=self.phases.shards_seen)
        self.phases.listeners.append(self)
        self._entered.enter_context(self.phases)
        self._entered.enter_context(linear_as_ever(operators))
        self._entered.enter_context(operators)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._entered.__exit__(*raised)

    def end_step(self, step: int) -> Trace:
        """What was seen since the last step ended."""
        made = Trace(step, self._parameters, tuple(self._inputs), tuple(self._seen))
        self._forget()
        return made

    def _forget(self) -> None:
        self._seen: list[Operation] = []
        self._inputs: list[str] = []
        self._parameters: dict[str, str] = {}
        self._nodes, self._lines = list[int](), list[str]()

    def model_called(self, model: torch.nn.Module, args: tuple[Any, ...]) -> None:
        self._parameters = {**parameters_in({model: self.phases.models.get(model, "")}), **self._parameters}
        self._inputs += [print_of(each) for each in tensors_in(args)]

    def forward_ends(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._inputs += [print_of(each) for each in tensors_in(kwargs)]

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        phase = self.phases.now().name
        if phase not in TRACED:
            return
        in_backward = phase == "backward" and not self.phases.recomputing()
        if not in_backward:
            self._nodes.append(next_node())
            self._lines.append(caller())
        results = list(tensors_in(out))
        if does_nothing(func) or not results:
            return
        if len(self._seen) == self.keep:
            with aside():
                self.kept = [each.detach().clone() for each in results]
        self._seen.append(
            Operation(
                phase=phase,
                module=self.phases.module(),
                name=func.overloadpacket.__name__,
                line=self._line_of(running_node()) if in_backward else self._lines[-1],
                shapes=tuple("x".join(map(str, each.shape)) for each in results),
                dtypes=tuple(str(each.dtype).removeprefix("torch.") for each in results),
                prints=tuple(map(print_of, results)),
                given=tuple(
                    print_of(each) for each in tensors_in((args, kwargs)) if all(each is not x for x in results)
                ),
            )
        )

    def _line_of(self, node: int) -> str:
        """The line whose forward made a graph node. A node has its number before the operation runs."""
        place = bisect_right(self._nodes, node)
        return self._lines[place] if place < len(self._lines) else ""


def parameters_in(models: Mapping[torch.nn.Module, str]) -> dict[str, str]:
    """Fingerprints of the parameters and buffers of models, each with the prefix of its names."""
    return {
        prefix + name: print_of(each)
        for model, prefix in models.items()
        for name, each in (*model.named_parameters(), *model.named_buffers())
    }


def print_of(tensor: torch.Tensor) -> str:
    """The hash of all bytes of a tensor."""
    with aside():
        return xxhash.xxh3_64_hexdigest(bits_of(tensor).numpy().data)


def largest_difference(one: list[torch.Tensor], other: list[torch.Tensor]) -> tuple[float, float] | None:
    """The largest difference of any element, and the same as a share of the largest value. None if shapes differ."""
    if [each.shape for each in one] != [each.shape for each in other]:
        return None
    largest = scale = 0.0
    for here, there in zip(map(wide, one), map(wide, other), strict=True):
        if here.numel():
            apart = torch.where(here.isnan() & there.isnan(), 0.0, (here - there).abs())
            largest = max(largest, apart.nan_to_num(torch.inf, torch.inf).max().item())
            scale = max(scale, here.abs().nan_to_num(0.0, 0.0).max().item())
    return largest, largest / scale if scale else float(bool(largest))
