"""Recipe: what to train and how. You write a function that returns one; its parameters are the knobs."""

from __future__ import annotations

import inspect
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
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset

    from surefoot.records.log import LogRow
    from surefoot.techniques.schedule import ByToken
    from surefoot.training.callbacks import RunSoFar

Precision = Literal["32-true", "bf16-mixed", "16-mixed", "bf16-true"]
Decay = Literal["all", "matrices"]
Compile = Literal["off", "blocks", "whole"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Nonfinite = Literal["stop", "skip"]
Reshard = Literal[True, False, "but-last"]
ReduceIn = Literal["float32", "bfloat16"]
Knob = str | int | float | bool | None
_ONE_OF = {
    "precision": Precision,
    "decay": Decay,
    "compile": Compile,
    "compile_mode": CompileMode | None,
    "nonfinite": Nonfinite,
    "reshard_after_forward": Reshard | None,
    "reduce_in": ReduceIn,
}
_FUNCTIONS = ("model", "data", "optimizer")
_FUNCTIONS_OR_NONE = (
    "loss",
    "step",
    "schedule",
    "collate",
    "evaluation",
    "metrics",
    "on_step",
    "on_evaluation",
    "read",
    "predict",
    "shard_blocks",
    "tensor_plan",
    "adapt",
)
_TEXTS = ("recompute", "init_accept", "about", "name", "target")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to train and how.

    `loss(model, batch)` returns a mean, or a sum and its count. Return a sum and a count if micro-batches can
    differ in the number of elements that count for the loss: the step then divides once, by the count of all
    micro-batches. Means of micro-batches get equal weight.

    `data()` returns a data set, a stream of samples, or something that makes whole micro-batches: a function
    `batch(number, size)`, or an object with that method, which may have a state. See docs/guide/made-data.md.

    `collate` joins samples into a batch (default: torch's own). `workers` is the number of loader processes;
    with "auto", `train` times a few steps and chooses one, which changes no bit. With `pin_memory=True`, `train` loads
    batches into pinned memory and copies them to the GPU without waiting.

    `evaluation` is held-out data. Every `evaluate_every` steps, `evaluation_batches` micro-batches of it are
    evaluated; with None, each of its samples once. If it is text, set `bytes_per_token` to see its loss in bits per
    byte too.

    `metrics(model, batch)` returns a dict of names, each with a sum and a count, or a torchmetrics object that has seen
    the batch. They are computed with each evaluation, and on the batch of every `metrics_every`-th step.
    `best="accuracy"` keeps the checkpoint with the highest accuracy, `best="-loss"` that with the lowest held-out loss;
    its weights become the run's. `patience` ends the run after so many evaluations without a better one.
    `test` is data that is evaluated once, at the end, or a dict of names and such data.

    `on_step(run, row)` is called after each logged step, `on_evaluation(run, row)` after each evaluation, on rank 0.
    They cannot change the training. `row` is the row of the log; `run` has `folder`, `step`, `steps`, `recipe`,
    `best_step` and `model()`, a copy of the model. See docs/guide/callbacks.md.

    `read(item)` and `predict(model, batch)` say how `surefoot predict` uses the trained model: how the JSON value of a
    line, or the path of a file, becomes a sample, and what the model says of each sample. See docs/guide/predict.md.

    Every `layers_every` steps, the run records the gradient, the update and the activations of each layer: see
    docs/guide/layers.md.

    `save_every` is a number of steps, or a text like "10 min" or "1e9 tokens". A loss or gradient that is not finite
    stops the run before the update; with `nonfinite="skip"`, only that update is skipped. With `rewind=True`, a loss
    spike (see docs/guide/trouble.md) takes the run back to its last checkpoint and past the samples of that step.

    `mirror` is a URL, for example `s3://bucket/run`. Each checkpoint, the log and the weights are copied to it: see
    docs/guide/mirror.md.

    `step(networks, optimizers, batch)` replaces the usual update by one of your own: it calls backward and steps one or
    several optimizers, and returns its loss, or a dict of losses. Then `model` may return a dict of networks, and
    `optimizer` gets the networks and may return a dict of optimizers. See docs/guide/own-step.md.

    `optimizer` gets the trainable parameters; with `decay="matrices"`, two groups of them. `freeze="encoder.*"` freezes
    the parameters whose names match: a shell pattern, or several as a tuple or divided by commas. With `ema=0.999`, the
    run also keeps a moving average of the trained weights, evaluates it, and its weights are that average.

    `float32="head"` makes the modules whose names match compute in float32, under `bf16-mixed` and `16-mixed`.

    `schedule(step, steps)` returns the factor of the learning rates. A function of one thing, `schedule(optimizer)`,
    returns a scheduler of torch: it is stepped once per update, `ReduceLROnPlateau` once per evaluation.

    On many ranks, `dp_replicate` x `dp_shard` x `tp` of them hold the model (`techniques/mesh.py`). `dp_shard=-1` takes
    the ranks that the others leave. `shard_blocks(model)` returns the modules to shard on their own, if the repeated
    modules are not the right ones. `tensor_plan(model)` says how to split layers over `tp`, as torch's
    `parallelize_module` takes it. `reshard_after_forward` is that of torch's `fully_shard`; with `"but-last"`, the last
    of the modules stays gathered, because backward needs it first. `reduce_in` is the format in which sharded ranks
    add up the gradients of `bf16-mixed` and `16-mixed`. `bucket_cap_mb` is that of torch's `DistributedDataParallel`.

    `loss_chunks` and `loss_parallel` avoid that all logits of a language model exist at once
    (`techniques/loss_chunks.py`, `techniques/loss_parallel.py`). `fused=True` asks the optimizer for torch's fused
    kernels.

    `init_from` is a file or folder with weights to start from: docs/guide/init-from.md. `init_accept` names the tensors
    that may differ, as patterns with commas between them.

    `adapt(model)` gets the model with these weights and returns the one to train: with adapters, or frozen or quantised
    layers. See docs/guide/finetune.md.

    `density` is the share of elements that masks and routing select, which a plan cannot know.

    `about` says in one line what is learned from what. `load_recipe` fills in `name`, `target` and `knobs`, which say
    where a recipe came from.
    """

    model: Callable[[], Any]
    data: Callable[[], Any]
    loss: Callable[[nn.Module, Any], Tensor | tuple[Tensor, Tensor | int]] | None = None
    optimizer: Callable[[Any], Any]
    step: Callable[[Any, Any, Any], Tensor | Mapping[str, Tensor]] | None = None
    schedule: Callable[[int, int], float] | Callable[[Optimizer], LRScheduler] | ByToken | None = None
    micro_batch_size: int = 1
    tokens_per_sample: int = 1
    global_batch_tokens: int | None = None
    max_steps: int | None = None
    max_tokens: int | None = None
    precision: Precision = "32-true"
    float32: str | tuple[str, ...] | None = None
    max_grad_norm: float | None = None
    collate: Callable[[list[Any]], Any] | None = None
    workers: int | Literal["auto"] = 0
    pin_memory: bool = False
    evaluation: Callable[[], Dataset[Any]] | None = None
    evaluate_every: int | None = None
    evaluation_batches: int | None = 8
    metrics: Callable[[nn.Module, Any], Mapping[str, Any]] | None = None
    metrics_every: int | None = None
    layers_every: int | None = None
    best: str | None = None
    patience: int | None = None
    test: Callable[[], Dataset[Any]] | Mapping[str, Callable[[], Dataset[Any]]] | None = None
    bytes_per_token: float | None = None
    on_step: Callable[[RunSoFar, LogRow], object] | None = None
    on_evaluation: Callable[[RunSoFar, LogRow], object] | None = None
    read: Callable[[Any], Any] | None = None
    predict: Callable[[nn.Module, Any], Any] | None = None
    save_every: str | int | None = "10 min"
    keep_last: int = 3
    mirror: str | None = None
    nonfinite: Nonfinite = "stop"
    rewind: bool = False
    decay: Decay = "all"
    freeze: str | tuple[str, ...] | None = None
    ema: float | None = None
    recompute: str = "none"
    compile: Compile | bool = "off"
    compile_mode: CompileMode | None = None
    compile_dynamic: bool | None = None
    fullgraph: bool = False
    dp_replicate: int = 1
    dp_shard: int = -1
    tp: int = 1
    reshard_after_forward: Reshard | None = None
    reduce_in: ReduceIn = "float32"
    bucket_cap_mb: float | None = None
    loss_chunks: int = 1
    loss_parallel: bool = False
    fused: bool | None = None
    shard_blocks: Callable[[nn.Module], Iterable[nn.Module]] | None = None
    tensor_plan: Callable[[nn.Module], Mapping[str, ParallelStyle]] | None = None
    init_from: str | None = None
    init_accept: str = ""
    adapt: Callable[[nn.Module], nn.Module] | None = None
    density: float | None = None
    seed: int = 0
    about: str = ""
    name: str = "recipe"
    target: str = ""
    knobs: Mapping[str, Knob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.compile, bool):
            object.__setattr__(self, "compile", "whole" if self.compile else "off")
        self._join_patterns("freeze", "parameter names, such as 'encoder.*'")
        self._join_patterns("float32", "module names, such as 'head'")
        for name, kind in _ONE_OF.items():
            if getattr(self, name) not in _choices(kind):
                raise RecipeError(f"{name} {getattr(self, name)!r} is not one of {', '.join(map(str, _choices(kind)))}")
        check_numbers(self, NUMBERS)
        self._check_kinds()
        if self.tp > 1 and self.tensor_plan is None:
            raise RecipeError(
                f"tp={self.tp} needs a tensor_plan, and {self.name} has none: it says how to split layers"
            )
        if self.fullgraph and self.compile == "off":
            raise RecipeError("fullgraph=True needs compile='blocks' or compile='whole': nothing is compiled")
        if self.loss_parallel and self.tp == 1:
            raise RecipeError("loss_parallel splits logits over the ranks of tp, and tp=1; use loss_chunks")
        if self.float32 is not None and not self.precision.endswith("-mixed"):
            raise RecipeError(
                f"float32={self.float32!r} needs precision='bf16-mixed' or '16-mixed'; with {self.precision} all "
                f"modules compute alike"
            )
        if self.tp > 1 and self.precision == "16-mixed":
            raise RecipeError(
                "precision='16-mixed' does not work with tp: ranks could scale differently; use bf16-mixed"
            )
        budget_of(self.recompute)
        self._check_selection()
        self._check_step()
        self._check_callbacks()
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
        if callable(self.schedule) and not (_takes(self.schedule, 1) or _takes(self.schedule, 2)):
            raise RecipeError("schedule must take two things, schedule(step, steps), or one, schedule(optimizer)")
        if not (self.best is None or (isinstance(self.best, str) and self.best.removeprefix("-"))):
            raise RecipeError(f"best={self.best!r} must be the name of a metric, with - before it if lower is better")
        if not (self.init_from is None or (isinstance(self.init_from, str) and self.init_from)):
            raise RecipeError(f"init_from={self.init_from!r} must be the path of a file or folder, or None")
        if self.init_accept and self.init_from is None:
            raise RecipeError(f"init_accept={self.init_accept!r} needs init_from: a file or folder with weights")
        if not (self.test is None or all(map(callable, self.tests().values()))):
            raise RecipeError("test must be a function that returns data, or a dict of names and such functions")
        truths = dict.fromkeys(("rewind", "loss_parallel", "pin_memory", "fullgraph"), (True, False))
        for name, choices in (*truths.items(), *((name, (True, False, None)) for name in ("compile_dynamic", "fused"))):
            if not any(getattr(self, name) is each for each in choices):
                raise RecipeError(f"{name}={getattr(self, name)!r} must be one of {', '.join(map(str, choices))}")

    def _join_patterns(self, name: str, of: str) -> None:
        """Joins several patterns into one text, as a command line gives them. Refuses one that is not text."""
        value = getattr(self, name)
        given = (value,) if isinstance(value, str) else value
        if given is None:
            return
        if not (isinstance(given, tuple | list) and given and all(isinstance(x, str) and x.strip() for x in given)):
            raise RecipeError(f"{name}={value!r} must be a pattern of {of}")
        parts = [part.strip() for each in given for part in each.split(",")]
        object.__setattr__(self, name, ",".join(filter(None, parts)))

    def _check_selection(self) -> None:
        """Refuses a choice of the best step, or a metric, for which something is missing."""
        if self.metrics_every is not None and self.metrics is None:
            raise RecipeError(f"metrics_every={self.metrics_every} needs metrics, and {self.name} has none")
        if self.patience is not None and self.best is None:
            raise RecipeError(f"patience={self.patience} needs best: the metric that should improve, or '-loss'")
        if self.best is None:
            return
        if self.evaluation is None or self.evaluate_every is None:
            raise RecipeError(f"best={self.best!r} needs evaluation and evaluate_every: it compares evaluations")
        if self.best == "loss":
            raise RecipeError("best='loss' would keep the highest loss; write best='-loss'")
        if self.best != "-loss" and self.metrics is None:
            raise RecipeError(f"best={self.best!r} needs metrics, and {self.name} has none; best='-loss' needs none")

    def _check_step(self) -> None:
        """Refuses settings that belong to the usual update, if the recipe writes its own."""
        if self.step is None:
            if self.loss is None:
                raise RecipeError(f"{self.name} has neither loss nor step: give one of them")
            return
        own = {
            "max_grad_norm": None,
            "decay": "all",
            "recompute": "none",
            "compile": "off",
            "nonfinite": "stop",
            "rewind": False,
            "tp": 1,
            "loss_chunks": 1,
            "fused": None,
        }
        given = [f"{name}={getattr(self, name)!r}" for name, usual in own.items() if getattr(self, name) != usual]
        if self.precision not in ("32-true", "bf16-true"):
            given.append(f"precision={self.precision!r}")
        if given:
            raise RecipeError(f"a recipe with its own step does {', '.join(given)} itself, inside step")
        if self.evaluation is not None and self.loss is None and self.metrics is None:
            raise RecipeError(
                f"{self.name} has evaluation data, its own step, and neither loss nor metrics to evaluate"
            )
        if self.micro_batches() != 1:
            raise RecipeError(
                f"a recipe with its own step gets one batch per step: set micro_batch_size, not "
                f"global_batch_tokens={self.global_batch_tokens:,}"
            )

    def _check_callbacks(self) -> None:
        """Refuses a callback that cannot be called with a run and a row, or that would never be called."""
        for name in ("on_step", "on_evaluation"):
            if (function := getattr(self, name)) is not None and not _takes(function, 2):
                raise RecipeError(f"{name} must be a function of two things: {name}(run, row)")
        if self.on_evaluation is not None and (self.evaluation is None or self.evaluate_every is None):
            raise RecipeError("on_evaluation needs evaluation and evaluate_every: it is called after each evaluation")

    def refuse_own_step(self, what: str) -> None:
        """Raises if the recipe writes its own update, and `what` needs the usual one."""
        if self.step is not None:
            raise RecipeError(f"{what} needs the usual update, and {self.name} has a step of its own")

    def tests(self) -> Mapping[str, Callable[[], Dataset[Any]]]:
        """The test data by name. A single one is called `test`."""
        if self.test is None:
            return {}
        return self.test if isinstance(self.test, Mapping) else {"test": self.test}

    @property
    def schedules_itself(self) -> bool:
        """Whether `schedule` makes a scheduler of torch: it takes one thing only, or the first is named `optimizer`."""
        return callable(self.schedule) and (not _takes(self.schedule, 2) or _first(self.schedule) == "optimizer")

    @property
    def loaders(self) -> int:
        """The number of loader processes at the start of a run."""
        return 0 if self.workers == "auto" else self.workers

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


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with this many arguments. True if Python cannot say."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _first(function: Callable[..., Any]) -> str:
    """The name of a function's first parameter. Empty if Python cannot say."""
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except ValueError:
        return ""


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
