"""Recipe: what to train and how. You write a function that returns one; its parameters are the knobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from surefoot.errors import RecipeError
from surefoot.recipe.ranges import NUMBERS, check_numbers

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed.tensor.parallel import ParallelStyle
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from surefoot.techniques.schedule import ByToken

Precision = Literal["32-true", "bf16-mixed", "16-mixed", "bf16-true"]
Decay = Literal["all", "matrices"]
Compile = Literal["off", "blocks", "whole"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Nonfinite = Literal["stop", "skip"]
Reshard = Literal[True, False, "but-last"]
Knob = str | int | float | bool | None
_ONE_OF = {
    "precision": Precision,
    "decay": Decay,
    "compile": Compile,
    "compile_mode": CompileMode | None,
    "nonfinite": Nonfinite,
    "reshard_after_forward": Reshard | None,
}
_FUNCTIONS = ("model", "data", "loss", "optimizer")
_FUNCTIONS_OR_NONE = ("schedule", "collate", "evaluation", "shard_blocks", "tensor_plan")
_TEXTS = ("recompute", "about", "name", "target")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to train and how.

    `loss(model, batch)` returns a mean, or a sum and its count. Return a sum and a count if micro-batches can
    differ in the number of elements that count for the loss: the step then divides once, by the count of all
    micro-batches. Means of micro-batches get equal weight.

    `collate` joins samples into a batch (default: torch's own). `workers` is the number of loader processes.

    `evaluation` is held-out data. Every `evaluate_every` steps, `evaluation_batches` micro-batches of it are
    evaluated. If it is text, set `bytes_per_token` to see its loss in bits per byte too.
    `save_every` is a number of steps, or a text like "10 min" or "1e9 tokens". A loss or gradient that is not finite
    stops the run before the update; with `nonfinite="skip"`, only that update is skipped. With `rewind=True`, a loss
    spike (see docs/guide/trouble.md) takes the run back to its last checkpoint and past the samples of that step.

    `mirror` is a URL, for example `s3://bucket/run`. Each checkpoint, the log and the weights are copied to it: see
    docs/guide/mirror.md.

    `optimizer` gets the trainable parameters; with `decay="matrices"`, two groups of them.

    On many ranks, `dp_replicate` x `dp_shard` x `tp` of them hold the model (`techniques/mesh.py`). `dp_shard=-1` takes
    the ranks that the others leave. `shard_blocks(model)` returns the modules to shard on their own, if the repeated
    modules are not the right ones. `tensor_plan(model)` says how to split layers over `tp`, as torch's
    `parallelize_module` takes it. `reshard_after_forward` is that of torch's `fully_shard`; with `"but-last"`, the last
    of the modules stays gathered, because backward needs it first.

    `density` is the share of elements that masks and routing select, which a plan cannot know.

    `about` says in one line what is learned from what. `load_recipe` fills in `name`, `target` and `knobs`, which say
    where a recipe came from.
    """

    model: Callable[[], nn.Module]
    data: Callable[[], Dataset[Any]]
    loss: Callable[[nn.Module, Any], Tensor | tuple[Tensor, Tensor | int]]
    optimizer: Callable[[Any], Optimizer]
    schedule: Callable[[int, int], float] | ByToken | None = None
    micro_batch_size: int = 1
    tokens_per_sample: int = 1
    global_batch_tokens: int | None = None
    max_steps: int | None = None
    max_tokens: int | None = None
    precision: Precision = "32-true"
    max_grad_norm: float | None = None
    collate: Callable[[list[Any]], Any] | None = None
    workers: int = 0
    evaluation: Callable[[], Dataset[Any]] | None = None
    evaluate_every: int | None = None
    evaluation_batches: int = 8
    bytes_per_token: float | None = None
    save_every: str | int | None = "10 min"
    keep_last: int = 3
    mirror: str | None = None
    nonfinite: Nonfinite = "stop"
    rewind: bool = False
    decay: Decay = "all"
    recompute: str = "none"
    compile: Compile | bool = "off"
    compile_mode: CompileMode | None = None
    compile_dynamic: bool | None = None
    dp_replicate: int = 1
    dp_shard: int = -1
    tp: int = 1
    reshard_after_forward: Reshard | None = None
    shard_blocks: Callable[[nn.Module], Iterable[nn.Module]] | None = None
    tensor_plan: Callable[[nn.Module], Mapping[str, ParallelStyle]] | None = None
    density: float | None = None
    seed: int = 0
    about: str = ""
    name: str = "recipe"
    target: str = ""
    knobs: Mapping[str, Knob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.compile, bool):
            object.__setattr__(self, "compile", "whole" if self.compile else "off")
        for name, kind in _ONE_OF.items():
            if getattr(self, name) not in _choices(kind):
                raise RecipeError(f"{name} {getattr(self, name)!r} is not one of {', '.join(map(str, _choices(kind)))}")
        check_numbers(self, NUMBERS)
        self._check_kinds()
        if self.tp > 1 and self.tensor_plan is None:
            raise RecipeError(
                f"tp={self.tp} needs a tensor_plan, and {self.name} has none: it says how to split layers"
            )
        if self.tp > 1 and self.precision == "16-mixed":
            raise RecipeError(
                "precision='16-mixed' does not work with tp: ranks could scale differently; use bf16-mixed"
            )
        budget_of(self.recompute)
        self.micro_batches()

    def _check_kinds(self) -> None:
        """Refuses a field that is not the function, text or truth value it should be."""
        for name in (*_FUNCTIONS, *_FUNCTIONS_OR_NONE):
            value = getattr(self, name)
            if not (callable(value) or hasattr(value, "by_step") or (value is None and name in _FUNCTIONS_OR_NONE)):
                also = ", or None" if name in _FUNCTIONS_OR_NONE else ""
                raise RecipeError(f"{name} must be a function{also}, not {type(value).__name__}")
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise RecipeError(f"{name}={getattr(self, name)!r} must be text")
        for name, choices in (("rewind", (True, False)), ("compile_dynamic", (True, False, None))):
            if not any(getattr(self, name) is each for each in choices):
                raise RecipeError(f"{name}={getattr(self, name)!r} must be one of {', '.join(map(str, choices))}")

    @property
    def unit(self) -> str:
        """What the run counts: tokens, or samples if a sample is one token."""
        return "token" if self.tokens_per_sample > 1 else "sample"

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer update, over all ranks."""
        return self.global_batch_tokens or self.micro_batch_size * self.tokens_per_sample

    def micro_batches(self, ranks: int = 1) -> int:
        """How many micro-batches each rank accumulates into one update. The global batch must be divisible by them."""
        tokens = ranks * self.micro_batch_size * self.tokens_per_sample
        wanted = self.global_batch_tokens or tokens
        if wanted % tokens:
            raise RecipeError(
                f"global_batch_tokens={wanted:,} does not divide into micro-batches: {ranks} rank(s) x "
                f"micro_batch_size={self.micro_batch_size} x tokens_per_sample={self.tokens_per_sample:,} "
                f"= {tokens:,} tokens; try global_batch_tokens={max(1, round(wanted / tokens)) * tokens}"
            )
        return wanted // tokens

    def steps(self) -> int | None:
        """Optimizer updates in the whole run; None if neither `max_steps` nor `max_tokens` is set."""
        by_tokens = None if self.max_tokens is None else -(-self.max_tokens // self.tokens_per_step)
        given = [steps for steps in (self.max_steps, by_tokens) if steps is not None]
        return min(given) if given else None


def _choices(kind: Any) -> tuple[Any, ...]:
    """The values of a Literal, with None if it is optional."""
    parts = get_args(kind)
    return (*get_args(parts[0]), None) if type(None) in parts else parts


UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def budget_of(recompute: str) -> float | int | None:
    """The budget in a recipe's `recompute`: a share as a float, bytes as an int; None if it is no budget."""
    if recompute in ("none", "full", "selective"):
        return None
    found = re.fullmatch(r"budget=(.+)", recompute)
    size = bytes_of(found[1]) if found else None
    if size is not None:
        return size
    if found and re.fullmatch(r"\d+(\.\d+)?", found[1]) and float(found[1]) <= 1:
        return float(found[1])
    raise RecipeError(
        f"recompute={recompute!r} is not one of none, full, selective, budget=SHARE from 0 to 1, "
        f"budget=SIZE in {', '.join(UNITS)}, for example budget=2GiB"
    )


def bytes_of(text: str) -> int | None:
    """Reads `2GiB` or `1.5 GB` as bytes; None if the number or the unit is missing."""
    found = re.fullmatch(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})", text)
    return round(float(found[1]) * UNITS[found[2]]) if found else None
