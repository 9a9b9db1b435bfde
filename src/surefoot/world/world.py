"""World: where a step runs. Real, fake (any number of ranks, no memory) or tiny."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from surefoot.errors import (
    DataError,
    DiskError,
    MissingPackage,
    RankLost,
    RecipeError,
    RunError,
    SurefootError,
    WorldError,
)
from surefoot.recipe.recipe import Recipe
from surefoot.torch_inside.autograd import in_graph_task
from surefoot.torch_inside.fake_mode import FakeMode
from surefoot.torch_inside.fake_ranks import fake_ranks
from surefoot.torch_inside.modes import unseen
from surefoot.torch_inside.sparse import LAYOUTS, fake_sparse, parts_of
from surefoot.trees import map_tensors
from surefoot.world.device import accelerator, widest
from surefoot.world.fake_operators import FakeOperators, is_small
from surefoot.world.gpu.as_on import as_on
from surefoot.world.gpu.target import CPU, Gpu, targets
from surefoot.world.gpu.workspaces import GpuKernels
from surefoot.world.host_memory import to_device, to_planned_device
from surefoot.world.kernels import AnyKernels, Kernels
from surefoot.world.known_values import READ
from surefoot.world.library_tables import forget_fake_tables
from surefoot.world.lost_ranks import leave, lost

if TYPE_CHECKING:
    from typing_extensions import Self

Made = TypeVar("Made")
SIMPLE = (DataError, DiskError, MissingPackage, RecipeError, RunError, WorldError)
"""Errors that can be sent to another process: they hold only a message."""


class World:
    """Real tensors on the machine's own device. Enter it, build in it, take batches in it."""

    rank = 0
    ranks = 1
    compiles = True
    """Whether a recipe's `compile` applies. A step that is only analysed runs uncompiled."""
    gpu: Gpu | None = None
    """The GPU that a step is planned for."""

    def __init__(self) -> None:
        self.device = accelerator() or torch.device("cpu")
        self.assumptions: dict[str, int] = {}
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def sum(self, *numbers: torch.Tensor | float) -> tuple[torch.Tensor, ...]:
        """The sums of a few numbers over all ranks, in the widest type of the device."""
        dtype = widest(self.device)
        totals = torch.stack([torch.as_tensor(each, dtype=dtype, device=self.device) for each in numbers])
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

    def from_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that waited in host memory, on the world's device."""
        return to_device(tensor, self.device)

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

    def __exit__(self, *failure: Any) -> None:
        """Names the rank that was lost, if that is why the work failed."""
        error = failure[1] if len(failure) > 1 else None
        found = None if error is None else self.failed(error)
        super().__exit__(*failure)
        if found is not None:
            raise found from error

    def failed(self, error: BaseException, *, step: int | None = None) -> RankLost | None:
        """Tells the other ranks that this one ends. Returns the error that names a lost rank, if one was lost."""
        if self.ranks == 1 or isinstance(error, RankLost):
            return None
        store = agent_store("beats")
        leave(store, self.rank, error)
        return lost(store, error, rank=self.rank, ranks=self.ranks, step=step)


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
        # One scale for all samples lets each depend a little on the others: checks would take it for a leak.
        precision = "bf16-mixed" if recipe.multiplies_in_fp8 else recipe.precision
        return dataclasses.replace(recipe, micro_batch_size=size, global_batch_tokens=tokens, precision=precision)


class FakeWorld(World):
    """Tensors with a shape but no memory, and `ranks` simulated ranks. This process is rank 0.

    Scalars stay real, so that optimizers and GradScaler read true step counts and scales. Small integer tensors
    stay real too, so that code that reads tokens, positions, lengths and masks takes its usual path. Other small
    tensors that depend on nothing fake have their values beside them.
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
            Kernels(density=density) if gpu is None else GpuKernels(gpu, in_backward=in_graph_task)
        )
        self.operators = FakeOperators(self.assumptions, self.kernels, density)

    def __enter__(self) -> Self:
        if self.ranks > 1:
            self._entered.enter_context(fake_ranks(self.ranks))
        if self.gpu is not None:
            self._entered.enter_context(as_on(self.gpu))
        self._entered.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # torch's own code does it
        self._entered.enter_context(self._fake)
        self._entered.enter_context(self.operators)
        self._entered.enter_context(self.operators.arrays())
        return self

    def __exit__(self, *failure: Any) -> None:
        """Names the integer that was guessed, if the code that read it failed: it is no mistake of the code."""
        super().__exit__(*failure)
        forget_fake_tables()
        error = failure[1] if len(failure) > 1 else None
        if self.operators.guessed and isinstance(error, Exception) and not isinstance(error, SurefootError):
            raise WorldError(
                f"{self.operators.guessed} that a plan does not know, and with a guess in its place the step failed "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); move this code out of the step, or "
                "plan without it"
            ) from error

    @property
    def guesses(self) -> int:
        """How often code was answered that chooses by a value which nobody knows."""
        return self.operators.guesses

    def most(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)  # all ranks are like this one

    def finite(self, number: torch.Tensor) -> bool:
        torch.isfinite(number)  # it allocates here too
        return True

    def from_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return super().from_host(tensor) if self.gpu is None else to_planned_device(tensor)

    def _place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of a tensor, or a small tensor unchanged. Tensors that share storage still share it."""
        if is_small(tensor):
            self.operators.give(tensor)
            return tensor
        if tensor.layout in LAYOUTS:
            *indices, values = parts_of(tensor)
            values = values.clone()  # torch makes no fake of what is a view of a sparse tensor
            return fake_sparse(self._fake, tensor, (*indices, self._place(values)))
        fake = self._fake.from_tensor(tensor)
        if tensor.untyped_storage().nbytes() == tensor.nbytes:  # no view: what is written to its base would go unseen
            self.operators.values.know(fake, tensor, of=READ)
        return fake


def fake_world(on: str = CPU, *, ranks: int | None = None) -> FakeWorld:
    """A context in which your own loop allocates nothing: on `"256xh100-sxm"`, or on `ranks` ranks of this CPU."""
    count, gpu = targets(on)
    return FakeWorld(ranks=ranks or count, gpu=gpu)
