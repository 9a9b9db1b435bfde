"""World: where a step runs. Real, fake (any number of ranks, no memory) or tiny."""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from surefoot.errors import DataError, DiskError, MissingPackage, RecipeError, RunError, SurefootError, WorldError
from surefoot.recipe.recipe import Recipe
from surefoot.trees import map_tensors
from surefoot.world.fake_mode import FakeMode
from surefoot.world.fake_operators import FakeOperators, is_small
from surefoot.world.fake_ranks import fake_ranks
from surefoot.world.gpu.autocast import autocasting
from surefoot.world.gpu.operators import operators
from surefoot.world.gpu.target import CPU, Gpu, targets
from surefoot.world.gpu.workspaces import GpuKernels
from surefoot.world.kernels import AnyKernels, Kernels

Made = TypeVar("Made")
SIMPLE = (DataError, DiskError, MissingPackage, RecipeError, RunError, WorldError)
"""Errors that can be sent to another process: they hold only a message."""


def unseen() -> AbstractContextManager[Any]:
    """A context that no mode sees: neither meters nor fake tensors."""
    return _disable_current_modes() if _get_current_dispatch_mode_stack() else nullcontext()


class World:
    """Real tensors on the machine's own device. Enter it, build in it, take batches in it."""

    rank = 0
    ranks = 1
    compiles = True
    """Whether a recipe's `compile` applies. A step that is only analysed runs uncompiled."""
    gpu: Gpu | None = None
    """The GPU that a step is planned for."""

    def __init__(self) -> None:
        self.device = torch.accelerator.current_accelerator() or torch.device("cpu")
        self.assumptions: dict[str, int] = {}
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def sum(self, *numbers: torch.Tensor | float) -> tuple[torch.Tensor, ...]:
        """The sums of a few numbers over all ranks, in float64."""
        totals = torch.stack([torch.as_tensor(each, dtype=torch.float64, device=self.device) for each in numbers])
        if self.ranks > 1:
            dist.all_reduce(totals)
        return totals.unbind()

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of every rank, by rank. All ranks must give equally many."""
        mine = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        everyone = mine.repeat(self.ranks, 1)
        if self.ranks > 1:
            dist.all_gather(list(everyone.unbind()), mine)
        return everyone.tolist()

    def most(self, numbers: Sequence[int]) -> list[int]:
        """The maximum of each number over all ranks. No mode sees the exchange."""
        with unseen():
            mine = torch.tensor(numbers, dtype=torch.int64, device=self.device)
            if self.ranks > 1:
                dist.all_reduce(mine, dist.ReduceOp.MAX)
            return mine.tolist()

    def hand_out(self, value: Made, rank: int) -> Made:
        """Returns one rank's value on every rank."""
        if self.ranks == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=rank)
        return box[0]

    def from_first(self, work: Callable[[], Made]) -> Made:
        """Does `work` on rank 0 and returns its result on every rank. An error is raised on every rank."""
        if self.ranks == 1:
            return work()
        try:
            made: Any = work() if self.rank == 0 else None
        except Exception as error:
            self.hand_out((None, error if type(error) in SIMPLE else WorldError(f"rank 0 failed: {error!r}")), 0)
            raise
        made, refusal = self.hand_out((made, None), 0)
        if refusal is not None:
            refusal.told = True
            raise refusal
        return made

    def fit(self, recipe: Recipe) -> Recipe:
        """The recipe as it runs here."""
        return recipe

    def take(self, batches: Iterator[Any]) -> Any:
        """The next batch, on the world's device. Loading is not part of the step: no mode sees it."""
        with unseen():
            return map_tensors(self._copy if getattr(batches, "pinned", False) else self._place, next(batches))

    def finite(self, number: torch.Tensor) -> bool:
        """Whether a number is finite, so that the step may continue."""
        return bool(torch.isfinite(number))

    def _place(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Begins a copy from pinned memory. What computes on the device waits for it."""
        return tensor.to(self.device, non_blocking=True)


class RealWorld(World):
    """Real tensors on every rank that torchrun started, or on this process alone."""

    def __init__(self) -> None:
        super().__init__()
        self.ranks = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        if self.ranks > 1 and self.device.type != "cpu":
            torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", "0")))
            self.device = torch.device(self.device.type, torch.accelerator.current_device_index())

    def __enter__(self) -> Self:
        if self.ranks > 1 and not dist.is_initialized():
            backend, store = dist.get_default_backend_for_device(self.device), agent_store("ranks")
            if store is None:
                dist.init_process_group(backend)
            else:
                dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.ranks)
            self._entered.callback(dist.destroy_process_group)
        return self


def agent_store(name: str) -> dist.Store | None:
    """A store in torchrun's own process, which outlives ranks. None without torchrun.

    All restarts share it. torch 2.13 does not separate them: restarted ranks would read the addresses of their dead
    predecessors. So each restart has its own prefix.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    return dist.PrefixStore(f"surefoot/{os.environ['TORCHELASTIC_RESTART_COUNT']}/{name}", store)


class TinyWorld(World):
    """Real tensors, and steps cut to two micro-batches of a few samples: for checks, not for training."""

    compiles = False

    def __init__(self, *, samples: int = 4) -> None:
        super().__init__()
        self.samples = samples

    def fit(self, recipe: Recipe) -> Recipe:
        size = min(self.samples, recipe.micro_batch_size)
        micro_batches = min(2, recipe.micro_batches())
        tokens = size * micro_batches * recipe.tokens_per_sample
        return dataclasses.replace(recipe, micro_batch_size=size, global_batch_tokens=tokens)


class FakeWorld(World):
    """Tensors with a shape but no memory, and `ranks` simulated ranks. This process is rank 0.

    Scalars stay real, so that optimizers and GradScaler read true step counts and scales. Small integer tensors
    stay real too, so that code that reads tokens, positions, lengths and masks takes its usual path.
    With a `gpu`, fake CPU tensors behave as on CUDA.
    """

    compiles = False

    def __init__(
        self,
        *,
        ranks: int = 1,
        kernels: AnyKernels | None = None,
        density: float | None = None,
        gpu: Gpu | None = None,
    ) -> None:
        super().__init__()
        if ranks < 1:
            raise WorldError(f"a world has at least 1 rank, not {ranks}")
        self.ranks = ranks
        self.device = torch.device("cpu")
        self._fake = FakeMode()
        self.gpu = gpu
        self.kernels: AnyKernels = kernels or (
            Kernels(density=density) if gpu is None else GpuKernels(gpu, in_backward=in_backward)
        )
        self._operators = FakeOperators(self.assumptions, self.kernels, density)

    def __enter__(self) -> Self:
        if self.ranks > 1:
            self._entered.enter_context(fake_ranks(self.ranks))
        if self.gpu is not None:
            self._entered.enter_context(_as_on(self.gpu))
        self._entered.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # torch's own code does it
        self._entered.enter_context(self._fake)
        self._entered.enter_context(self._operators)
        self._entered.enter_context(self._operators.arrays())
        return self

    def __exit__(self, *failure: Any) -> None:
        """Names the integer that was guessed, if the code that read it failed: it is no mistake of the code."""
        super().__exit__(*failure)
        error = failure[1] if len(failure) > 1 else None
        if self._operators.guessed and isinstance(error, Exception) and not isinstance(error, SurefootError):
            raise WorldError(
                f"{self._operators.guessed} that a plan does not know, and with 1 in its place the step failed "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); move this code out of the step, or "
                "plan without it"
            ) from error

    def most(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)  # all ranks are like this one

    def finite(self, number: torch.Tensor) -> bool:
        torch.isfinite(number)  # it allocates here too
        return True

    def _place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of a tensor, or a small tensor unchanged. Tensors that share storage still share it."""
        return tensor if is_small(tensor) else self._fake.from_tensor(tensor)


def in_backward() -> bool:
    """Whether a backward is running here. A forward inside it is a recomputation."""
    return torch._C._current_graph_task_id() != -1


def in_transform() -> bool:
    """Whether code runs inside `torch.func.vmap`, `grad` or the like, where tensors have no memory of their own."""
    return torch._C._functorch.peek_interpreter_stack() is not None


@contextmanager
def _as_on(gpu: Gpu) -> Iterator[None]:
    """Makes operators and autocast behave as on CUDA. Optimizers use lists of tensors as they do on CUDA."""
    with torch.library._scoped_library("aten", "IMPL") as library, _lists_by_default():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")
            for name, function in autocasting():
                library.impl(name, function, "AutocastCPU")
            for name, function in operators(gpu):
                library.impl(name, function, "AutogradCPU")
        yield


@contextmanager
def _lists_by_default() -> Iterator[None]:
    """Makes optimizers and clipping use lists for fake CPU tensors, as they do on CUDA."""
    listed = optimizers._foreach_supported_types, torch.utils._foreach_utils._foreach_supported_types
    devices = optimizers._get_foreach_kernels_supported_devices
    for types in listed:
        types.append(FakeTensor)
    optimizers._get_foreach_kernels_supported_devices = lambda: [*devices(), "cpu"]
    try:
        yield
    finally:
        optimizers._get_foreach_kernels_supported_devices = devices
        for types in listed:
            types.remove(FakeTensor)


def graphs_compiled() -> int:
    """How many graphs torch.compile has made in this process so far."""
    dynamo = sys.modules.get("torch._dynamo")
    return 0 if dynamo is None else int(dynamo.utils.counters["stats"]["unique_graphs"])


def fake_world(on: str = CPU, *, ranks: int | None = None) -> FakeWorld:
    """A context in which your own loop allocates nothing: on `"256xh100-sxm"`, or on `ranks` ranks of this CPU."""
    count, gpu = targets(on)
    return FakeWorld(ranks=ranks or count, gpu=gpu)
