"""Budget: chooses which blocks to recompute, and how, to keep activations within a budget at the least extra time.

A block keeps everything, what `selective` keeps, or nothing. A forward of the first micro-batch on fake tensors finds
how many bytes each choice keeps, and how many seconds it computes again by the device's roofline. The combination
that adds the fewest seconds wins (`costs/knapsack.py`). Among identical blocks the last ones are not recomputed: their
activations are freed before the first blocks are recomputed. On many ranks, each amount is the largest over all
ranks, so that all ranks choose alike.

A block keeps what autograd saves in it: each storage once, inputs included, parameters not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from surefoot.costs.knapsack import Offer, Way, cheapest, ways
from surefoot.costs.roofline import Ceilings, ceilings_of, seconds_of
from surefoot.errors import RecipeError
from surefoot.hardware import datasheet
from surefoot.meters.work import does_nothing, work_of
from surefoot.techniques.selective import policy
from surefoot.torch_inside.modes import TorchDispatchMode
from surefoot.trees import map_tensors, tensors_in
from surefoot.world.fake_operators import rehearsal
from surefoot.world.this_machine import present_sheet
from surefoot.world.world import World

REFERENCE = "a100-sxm-80gb"
"""Its roofline is used if the device has no datasheet. Only the ratios between blocks matter."""

PICOSECONDS = 1e12
_FIRST = SelectiveCheckpointContext(is_recompute=False)


@dataclass
class Block:
    """One repeated module and, if there is a budget, what a forward on fake tensors measured."""

    name: str
    module: Any
    saved_bytes: int = 0
    """What it keeps for backward if it is not recomputed, without the inputs of blocks."""
    selective_bytes: int = 0
    picoseconds: int = 0
    """Of its forward."""
    selective_picoseconds: int = 0
    """Of the part of its forward that `selective` runs again."""

    @property
    def offers(self) -> dict[str, Offer]:
        """What it keeps and what it computes again, for each way to recompute it."""
        return {
            "full": Offer(0, self.picoseconds),
            "selective": Offer(self.selective_bytes, self.selective_picoseconds),
            "none": Offer(self.saved_bytes, 0),
        }


@dataclass(frozen=True)
class Settled:
    """The outcome of a budget: the reason, and the bytes that all blocks keep in each Pareto-optimal choice."""

    reason: str
    kept_bytes: tuple[int, ...]


class Whole:
    """An unsharded model, for a forward on fake tensors."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def parameters(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The parameters it computes with."""
        return dict(self.model.named_parameters())

    def cast(self, tree: Any) -> Any:
        """A block's inputs in the format it computes in."""
        return tree


class Unsharded(Whole):
    """A copy of a model before sharding, without its parameters: FSDP's hooks would gather them from all ranks."""

    def __init__(self, model: nn.Module, gathered: torch.dtype | None) -> None:
        self.gathered = gathered
        self.shapes = {name: (each.shape, each.dtype, each.requires_grad) for name, each in model.named_parameters()}
        empty = {id(each): _emptied(each) for each in model.parameters()}
        super().__init__(copy.deepcopy(model, {**empty, **{id(each): each for each in model.buffers()}}))

    def parameters(self, device: torch.device) -> dict[str, torch.Tensor]:
        return {
            name: torch.empty(shape, dtype=self._format(dtype), device=device, requires_grad=trained)
            for name, (shape, dtype, trained) in self.shapes.items()
        }

    def cast(self, tree: Any) -> Any:
        return map_tensors(lambda tensor: tensor.to(self._format(tensor.dtype)), tree)

    def _format(self, dtype: torch.dtype) -> torch.dtype:
        return self.gathered if self.gathered is not None and dtype.is_floating_point else dtype


def settle(
    whole: Whole, blocks: list[Block], given: tuple[Any, Any], budget: float, world: World, density: float | None
) -> Settled:
    """Measures the blocks and chooses. All ranks choose alike."""
    input_bytes = _measure(whole, blocks, given, density, _ceilings(world))
    input_bytes, *measured = world.most([input_bytes, *(amount for block in blocks for amount in _amounts(block))])
    for at, block in enumerate(blocks):
        amounts = measured[4 * at :][:4]
        block.saved_bytes, block.selective_bytes, block.picoseconds, block.selective_picoseconds = amounts
    return choose(blocks, input_bytes, budget)


def choose(blocks: list[Block], input_bytes: int, budget: float) -> Settled:
    """Sets how each block is recomputed, so that all blocks together stay within a budget."""
    most = input_bytes + sum(block.saved_bytes for block in blocks)
    limit = budget if isinstance(budget, int) else input_bytes + budget * (most - input_bytes)
    found = ways([list(block.offers.values()) for block in blocks])
    way = cheapest(found, limit - input_bytes)
    if way is None:
        raise RecipeError(
            f"a recompute budget of {_mebibytes(limit)} cannot be met: the inputs of the blocks alone take "
            f"{_mebibytes(input_bytes)}; lower micro_batch_size, or allow more"
        )
    for block, offer in zip(blocks, way.taken, strict=True):
        block.module.recomputed = list(block.offers)[offer]
    return Settled(_reason(way, input_bytes, limit, most, found[0]), tuple(input_bytes + each.bytes for each in found))


def _reason(way: Way, input_bytes: int, limit: float, most: int, least: Way) -> str:
    again = f"{way.cost / least.cost:.0%} of the blocks' forward seconds again; " if least.cost else ""
    return (
        f"{again}{_mebibytes(input_bytes + way.bytes)} kept for backward, at most {_mebibytes(limit)} allowed; "
        f"{_mebibytes(most)} without recomputing, {_mebibytes(input_bytes)} with all recomputed"
    )


def _amounts(block: Block) -> tuple[int, ...]:
    return block.saved_bytes, block.selective_bytes, block.picoseconds, block.selective_picoseconds


def _ceilings(world: World) -> Ceilings:
    """The ceilings of the device that the step is planned for or runs on."""
    sheet = datasheet(world.gpu.name) if world.gpu is not None else present_sheet(world.device)
    known = sheet is not None and sheet.memory_bandwidth and sheet.dense_flops
    return ceilings_of(sheet if known and sheet is not None else datasheet(REFERENCE))


# ------------------------------------------------------------------------------------- a forward on fake tensors


def _measure(
    whole: Whole, blocks: list[Block], given: tuple[Any, Any], density: float | None, ceilings: Ceilings
) -> int:
    """Runs a forward on fake tensors, notes what each block keeps and computes, returns the bytes of all inputs."""
    device = next((tensor.device for tensor in tensors_in(given)), torch.device("cpu"))
    operators = _Operators(ceilings)
    watchers = [_Watcher(whole.model.get_submodule(block.name), operators, whole.cast) for block in blocks]
    try:
        with rehearsal([*whole.model.parameters(), *whole.model.buffers(), given], density) as fake, operators:
            state = fake({**whole.parameters(device), **dict(whole.model.named_buffers())})
            functional_call(whole.model, state, *fake(given))
    finally:
        for watcher in watchers:
            watcher.remove()
    inputs = {key: storage for watcher in watchers for key, storage in watcher.inputs.items()}
    known = {*inputs, *_storages(state)}
    for block, watcher in zip(blocks, watchers, strict=True):
        block.selective_bytes = sum(each.nbytes() for key, each in watcher.kept.items() if key not in known)
        block.saved_bytes = sum(each.nbytes() for key, each in watcher.saved.items() if key not in known)
        block.picoseconds = watcher.kept_picoseconds + watcher.other_picoseconds
        block.selective_picoseconds = watcher.other_picoseconds
        known |= set(watcher.saved)
    return sum(storage.nbytes() for storage in inputs.values())


class _Operators(TorchDispatchMode):
    """Reports each operator and its seconds to the running block."""

    def __init__(self, ceilings: Ceilings) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ceilings = ceilings
        self.running: _Watcher | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self.running is not None and not does_nothing(func):
            seconds, _ = seconds_of(work_of(func, args, kwargs, out), self.ceilings)
            self.running.operator(func, out, round(PICOSECONDS * seconds))
        return out


class _Watcher:
    """Collects the storages of a block's inputs, those autograd saves in it, and those `selective` keeps."""

    def __init__(self, module: nn.Module, operators: _Operators, cast: Callable[[Any], Any]) -> None:
        self.inputs: dict[int, torch.UntypedStorage] = {}
        self.saved: dict[int, torch.UntypedStorage] = {}
        self.kept: dict[int, torch.UntypedStorage] = {}
        self.kept_picoseconds = self.other_picoseconds = 0
        self._operators, self._cast = operators, cast
        self._saving = saved_tensors_hooks(self._save, lambda nothing: nothing)
        self._hooks = (
            module.register_forward_pre_hook(self._begin, with_kwargs=True),
            module.register_forward_hook(self._end, always_call=True),
        )

    def operator(self, func: Any, out: Any, picoseconds: int) -> None:
        """Call this after each operator of the block."""
        if self._policy(_FIRST, func) == CheckpointPolicy.MUST_SAVE:
            self.kept |= _storages(out)
            self.kept_picoseconds += picoseconds
        else:
            self.other_picoseconds += picoseconds

    def _begin(self, _: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self.inputs |= _storages([args, kwargs])
        self._saving.__enter__()
        self._policy, self._operators.running = policy(), self
        return self._cast(args), self._cast(kwargs)

    def _end(self, *_: Any) -> None:
        self._operators.running = None
        self._saving.__exit__(None, None, None)

    def _save(self, tensor: torch.Tensor) -> None:
        self.saved |= _storages(tensor)  # autograd keeps nothing: there will be no backward

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _emptied(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(torch.empty(0, dtype=parameter.dtype), parameter.requires_grad)


def _storages(tree: Any) -> dict[int, torch.UntypedStorage]:
    """The storages of a tree's tensors by id. The dict holds them, so that no id is reused."""
    return {id(storage): storage for storage in (tensor.untyped_storage() for tensor in tensors_in(tree))}


def _mebibytes(amount: float) -> str:
    return f"{amount / 2**20:,.2f} MiB"
