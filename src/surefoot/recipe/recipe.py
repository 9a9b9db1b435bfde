"""Recipe: what to train and how. You write a function that returns one; its parameters are the knobs."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

from surefoot.errors import RecipeError
from surefoot.recipe.by_token import ByToken
from surefoot.recipe.credentials import refuse_credentials
from surefoot.recipe.setting import called_with, declared, patterns, rates, setting, settings_in, takes, text

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn
    from torch.distributed.tensor.parallel import ParallelStyle
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset

    from surefoot.recipe.context_part import ContextPart
    from surefoot.records.log import LogRow

Precision = Literal["32-true", "bf16-mixed", "16-mixed", "bf16-true", "fp8", "fp8-rowwise"]
Decay = Literal["all", "matrices"]
Compile = Literal["off", "blocks", "whole"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Nonfinite = Literal["stop", "skip"]
Identified = Literal["sample", "all"]
ContextBy = Literal["keys", "heads"]
Offload = Literal["none", "activations"]
Reshard = bool | Literal["but-last"]
ReduceIn = Literal["float32", "bfloat16"]
Knob = str | int | float | bool | None


def _compile(name: str, value: Any) -> Any:
    value = {True: "whole", False: "off"}[value] if isinstance(value, bool) else value
    if value not in get_args(Compile):
        raise RecipeError(f"{name} {value!r} is not one of {', '.join(get_args(Compile))}")
    return value


def _metric(name: str, value: Any) -> Any:
    if not (value is None or (isinstance(value, str) and value.removeprefix("-"))):
        raise RecipeError(f"{name}={value!r} must be the name of a metric, with - before it if lower is better")
    return value


def _schedule(name: str, value: Any) -> Any:
    if not (value is None or callable(value) or hasattr(value, "by_step")):
        raise RecipeError(f"{name} must be a function, or None, not {type(value).__name__}")
    if callable(value) and not (takes(value, 1) or takes(value, 2)):
        raise RecipeError(f"{name} must take two things, {name}(step, steps), or one, {name}(optimizer)")
    return value


def _tests(name: str, value: Any) -> Any:
    if not (value is None or all(map(callable, value.values() if isinstance(value, Mapping) else (value,)))):
        raise RecipeError(f"{name} must be a function that returns data, or a dict of names and such functions")
    return value


def _interval(name: str, value: Any) -> Any:
    if not (value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))):
        raise RecipeError(f"{name}={value!r} must be a number of steps, a text such as '10 min', or None")
    return value


def _evaluates(recipe: Recipe) -> bool:
    return recipe.evaluation is not None and recipe.evaluate_every is not None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to train and how.

    Each field is a setting. `name=value` on a command line sets those that are text, numbers or truth values, for any
    recipe. The reference lists all fields with their types, defaults and ranges, and so does `help(Recipe)`.

    A run counts tokens, or samples if a sample is one token. It ends after `max_steps`, `max_tokens` or `max_epochs`,
    whichever comes first. Each rank accumulates micro-batches until an update has `global_batch_tokens`; without it, an
    update is one micro-batch of each rank. On many ranks, `dp_replicate` x `dp_shard` x `cp` x `tp` of them hold the
    model.
    """

    model: Callable[[], Any] = field(
        metadata=declared("Builds the model. With a `step`, it may return a dict of networks.")
    )
    data: Callable[[], Any] = field(
        metadata=declared(
            "Returns a data set, a stream of samples, or something that makes whole micro-batches: a function "
            "`batch(number, size)`, or an object with that method, which may have a state. See docs/guide/made-data.md."
        )
    )
    loss: Callable[[nn.Module, Any], Tensor | tuple[Tensor, Tensor | int]] | None = setting(
        None,
        "`loss(model, batch)` returns a mean, or a sum and its count. Return a sum and a count if micro-batches can "
        "differ in the number of elements that count for the loss: the step then divides once, by the count of all "
        "micro-batches. Means of micro-batches get equal weight.",
    )
    optimizer: Callable[[Any], Any] = field(
        metadata=declared(
            'Makes the optimizer of the trainable parameters, or of two groups of them with `decay="matrices"`. With a '
            "`step`, it gets the networks and may return a dict of optimizers."
        )
    )
    step: Callable[[Any, Any, Any], Tensor | Mapping[str, Tensor]] | None = setting(
        None,
        "`step(networks, optimizers, batch)` replaces the usual update by one of your own. It calls backward, steps "
        "one or several optimizers, and returns its loss, or a dict of losses. See docs/guide/own-step.md.",
    )
    schedule: Callable[[int, int], float] | Callable[[Optimizer], LRScheduler] | ByToken | None = setting(
        None,
        "`schedule(step, steps)` returns the factor of the learning rates. A function of one thing, "
        "`schedule(optimizer)`, returns a scheduler of torch: it is stepped once per update, `ReduceLROnPlateau` once "
        "per evaluation.",
        check=_schedule,
    )
    micro_batch_size: int = setting(1, "Samples in one micro-batch of a rank.", at_least=1, changes="rounding")
    tokens_per_sample: int = setting(1, "Tokens in one sample of the data.", at_least=1, command_line=False)
    global_batch_tokens: int | None = setting(
        None, "Tokens of one update, over all micro-batches and ranks.", at_least=1
    )
    max_steps: int | None = setting(None, "Ends the run after this many updates.", at_least=1)
    max_tokens: int | None = setting(None, "Ends the run after this many tokens.", at_least=1)
    max_epochs: float | None = setting(
        None,
        "Ends the run after this many passes over the data, such as 3 or 0.5. If the last one ends inside a step, the "
        "step is taken whole. A step may hold samples of two epochs.",
        above=0,
    )
    epoch_samples: int | None = setting(
        None,
        "Samples of one epoch. Counted from the data if `max_epochs` needs it.",
        at_least=1,
        changes="nothing",
        command_line=False,
    )
    precision: Precision = setting(
        "32-true",
        "The format of the parameters and of what is computed. See docs/guide/techniques.md, and "
        "docs/guide/fp8.md for FP8.",
    )
    float32: str | tuple[str, ...] | None = setting(
        None,
        "The modules that compute in float32 under mixed precision, as patterns of their names.",
        check=patterns("module names, such as 'head'"),
        needs=(
            "precision='bf16-mixed' or '16-mixed'; with {precision} all modules compute alike",
            lambda recipe: recipe.is_mixed,
        ),
    )
    deterministic: bool = setting(
        False,
        "Uses only kernels of torch that give the same bits each time. On a GPU, bit-for-bit resume needs it; it costs "
        "time.",
        changes="rounding",
    )
    max_grad_norm: float | None = setting(
        None, "Clips the norm of all gradients together to this value.", above=0, part="update"
    )
    collate: Callable[[list[Any]], Any] | None = setting(
        None, "`collate(samples)` joins samples into a batch. The default is torch's own."
    )
    workers: int | Literal["auto"] = setting(
        0,
        "Processes that load data. With `auto`, `train` times a few steps and chooses a number, which changes no bit.",
        at_least=0,
        at_most=1024,
        changes="nothing",
    )
    pin_memory: bool = setting(
        False,
        "Loads batches into pinned memory, and copies them to the GPU without waiting.",
        changes="nothing",
    )
    data_identity: Identified = setting(
        "sample",
        "What a resume compares with the data of the start: hashes of 64 samples, or with `all` every sample. With "
        "`sample`, a change of a few others is missed; with `all`, each start reads all of the data twice.",
    )
    evaluation: Callable[[], Dataset[Any]] | None = setting(None, "Returns held-out data.")
    evaluate_every: int | None = setting(
        None, "Evaluates the held-out data each time after this many steps.", at_least=1, changes="nothing"
    )
    evaluation_batches: int | None = setting(
        8, "Micro-batches of one evaluation. With None, every sample once.", at_least=1, changes="nothing"
    )
    metrics: Callable[[nn.Module, Any], Mapping[str, Any]] | None = setting(
        None,
        "`metrics(model, batch)` returns a dict of names, each with a sum and a count, or a torchmetrics object that "
        "has seen the batch. They are computed with each evaluation.",
    )
    metrics_every: int | None = setting(
        None,
        "Computes the metrics also on the batch of each step that this number divides.",
        at_least=1,
        needs=("metrics, and {name} has none", lambda recipe: recipe.metrics),
        changes="nothing",
    )
    layers_every: int | None = setting(
        None,
        "Records the gradient, the update and the activations of each layer, each time after this many steps. See "
        "docs/guide/layers.md.",
        at_least=1,
        changes="nothing",
    )
    best: str | None = setting(
        None,
        "Keeps the checkpoint with the best value of this metric, and makes its weights those of the run. "
        "`accuracy` keeps the highest one, `-loss` the lowest held-out loss.",
        check=_metric,
        needs=("evaluation and evaluate_every: it compares evaluations", _evaluates),
    )
    patience: int | None = setting(
        None,
        "Ends the run after this many evaluations without a better one.",
        at_least=1,
        needs=("best: the metric that should improve, or '-loss'", lambda recipe: recipe.best),
    )
    test: Callable[[], Dataset[Any]] | Mapping[str, Callable[[], Dataset[Any]]] | None = setting(
        None,
        "Returns data that is evaluated once, at the end. It may be a dict of names and such functions.",
        check=_tests,
    )
    bytes_per_token: float | None = setting(
        None,
        "Bytes of text in a token, on average: the loss is then logged in bits per byte too.",
        above=0,
        changes="nothing",
        command_line=False,
    )
    on_step: Callable[[RunSoFar, LogRow], object] | None = setting(
        None,
        "`on_step(run, row)` is called on rank 0 after each logged step, with the row of the log. It cannot change the "
        "training. `run` has `folder`, `step`, `steps`, `recipe`, `best_step` and `model()`, a copy of the model. See "
        "docs/guide/callbacks.md.",
        check=called_with("run", "row"),
    )
    on_evaluation: Callable[[RunSoFar, LogRow], object] | None = setting(
        None,
        "`on_evaluation(run, row)` is called like `on_step`, after each evaluation.",
        check=called_with("run", "row"),
        needs=("evaluation and evaluate_every: it is called after each evaluation", _evaluates),
    )
    read: Callable[[Any], Any] | None = setting(
        None,
        "`read(item)` makes a sample of the JSON value of a line, or of the path of a file, for `surefoot predict`. "
        "See docs/guide/predict.md.",
    )
    predict: Callable[[nn.Module, Any], Any] | None = setting(
        None, "`predict(model, batch)` returns what the model says of each sample, for `surefoot predict`."
    )
    save_every: str | int | None = setting(
        "10 min",
        "Saves a checkpoint each time after so many steps, or after an interval such as `10 min` or `1e9 tokens`.",
        check=_interval,
        changes="nothing",
    )
    keep_last: int = setting(3, "How many of the latest checkpoints are kept.", at_least=1, changes="nothing")
    checkpoints: str | None = setting(
        None,
        "A folder on another disk for the checkpoints. `RUN/checkpoints` becomes a link to it; a link to any other "
        "folder is refused.",
        check=text("the path of a folder", empty=False),
        changes="nothing",
    )
    mirror: str | None = setting(
        None,
        "A URL such as `s3://bucket/run`, to which each checkpoint, the log and the weights are copied. See "
        "docs/guide/mirror.md.",
        check=text("a URL, for example s3://bucket/run"),
        changes="nothing",
    )
    nonfinite: Nonfinite = setting(
        "stop",
        "What happens before an update with a loss or gradient that is not finite: stop the run, or skip the update.",
        part="update",
    )
    rewind: bool = setting(
        False,
        "After a spike of the loss, goes back to the last checkpoint and past the samples of that step. See "
        "docs/guide/trouble.md.",
        part="update",
    )
    decay: Decay = setting(
        "all",
        "The parameters that the optimizer's weight decay applies to. With `matrices`, biases and norms are a group "
        "without it.",
        part="update",
    )
    rates: str | tuple[str, ...] | None = setting(
        None,
        "Parameters with another learning rate, as patterns of their names with a share of the optimizer's: "
        "`head.*=10,embed.*=0.1`. The first that matches counts.",
        check=rates,
        part="update",
    )
    freeze: str | tuple[str, ...] | None = setting(
        None,
        "The parameters that are not trained, as patterns of their names: `encoder.*`.",
        check=patterns("parameter names, such as 'encoder.*'"),
        part="training",
    )
    ema: float | None = setting(
        None,
        "Keeps a moving average of the trained weights with this decay, such as 0.999. It is evaluated, and it becomes "
        "the weights of the run.",
        above=0,
        at_most=0.999999,
        part="training",
    )
    recompute: str = setting(
        "none",
        "The activations that backward computes again: `none`, `selective`, `full`, or what a budget leaves, such as "
        "`budget=0.5` or `budget=2GiB`.",
        part="update",
    )
    offload: Offload = setting(
        "none",
        "What waits in the memory of the host: `activations`, which backward needs. See docs/guide/offload.md.",
        changes="nothing",
        part="update",
    )
    compile: Compile | bool = setting(
        "off",
        "What torch compiles: the forward of each block, or of the whole model.",
        check=_compile,
        changes="rounding",
        part="update",
    )
    compile_mode: CompileMode | None = setting(
        None, "The `mode` of `torch.compile`.", changes="rounding", part="training"
    )
    compile_dynamic: bool | None = setting(None, "The `dynamic` of `torch.compile`.", part="training")
    fullgraph: bool = setting(
        False,
        "The `fullgraph` of `torch.compile`: a graph break is an error.",
        needs=("compile='blocks' or compile='whole': nothing is compiled", lambda recipe: recipe.compile != "off"),
        part="training",
    )
    dp_replicate: int = setting(
        1, "Replicas of the model, or of its shards.", at_least=1, changes="layout", part="training"
    )
    dp_shard: int = setting(
        -1,
        "Ranks that parameters, gradients and optimizer state are sharded over. With -1, all that the others leave.",
        at_least=1,
        also=(-1,),
        changes="layout",
        part="training",
    )
    tp: int = setting(
        1,
        "Ranks that single layers are split over.",
        at_least=1,
        needs=("a tensor_plan, and {name} has none: it says how to split layers", lambda recipe: recipe.tensor_plan),
        changes="layout",
        part="update",
    )
    cp: int = setting(
        1,
        "Ranks that the tokens of a sample are split over. See docs/guide/long-context.md.",
        at_least=1,
        needs=(
            "a context_plan, and {name} has none: it says how to split a batch",
            lambda recipe: recipe.context_plan,
        ),
        changes="layout",
        part="update",
    )
    cp_by: ContextBy = setting(
        "keys",
        "What ranks of `cp` exchange for attention: `keys` gathers keys and values, `heads` gives each rank whole "
        "sequences of some heads.",
        needs=("cp above 1: it says what ranks of cp exchange", lambda recipe: recipe.cp > 1),
        changes="layout",
        part="training",
    )
    reshard_after_forward: Reshard | None = setting(
        None,
        "Whether shards are gathered again for backward, as in torch's `fully_shard`. With `but-last`, the last "
        "of the modules stays gathered, because backward needs it first.",
        changes="layout",
        part="training",
    )
    reduce_in: ReduceIn = setting(
        "float32",
        "The format in which sharded ranks add up the gradients of mixed precision.",
        part="training",
    )
    bucket_cap_mb: float | None = setting(
        None,
        "MB of gradients that DDP adds up together: that of torch's `DistributedDataParallel`.",
        above=0,
        at_most=1e6,
        changes="rounding",
        part="training",
    )
    loss_chunks: int = setting(
        1,
        "The number of parts in which the logits of a language model are made, so that all of them never exist at "
        "once. See docs/guide/large-vocabulary.md.",
        at_least=1,
        at_most=65536,
        changes="rounding",
        part="update",
    )
    loss_parallel: bool = setting(
        False,
        "Keeps on each rank of `tp` only its part of the logits.",
        changes="layout",
        needs=(
            "tp above 1: loss_parallel splits logits over the ranks of tp; with tp=1, use loss_chunks",
            lambda recipe: recipe.tp > 1,
        ),
        part="training",
    )
    fused: bool | None = setting(
        None,
        "Asks the optimizer for torch's fused kernels. With None, the recipe's optimizer decides.",
        changes="rounding",
        part="update",
    )
    shard_blocks: Callable[[nn.Module], Iterable[nn.Module]] | None = setting(
        None, "`shard_blocks(model)` returns the modules to shard on their own. The default is the repeated modules."
    )
    tensor_plan: Callable[[nn.Module], Mapping[str, ParallelStyle]] | None = setting(
        None, "`tensor_plan(model)` says how to split layers over `tp`, as torch's `parallelize_module` takes it."
    )
    context_plan: Callable[[Any, ContextPart], Any] | None = setting(
        None,
        "`context_plan(batch, part)` returns a rank's part of a batch. It calls `part.cut(tensor)` on tensors whose "
        "second dimension is tokens, and `part.positions(tensor)`. See docs/guide/long-context.md.",
    )
    init_from: str | None = setting(
        None,
        "A file or folder with weights to start from. See docs/guide/init-from.md.",
        check=text("the path of a file or folder", empty=False),
    )
    init_accept: str = setting(
        "",
        "The tensors that may differ from those in `init_from`, as patterns with commas between them.",
        needs=("init_from: a file or folder with weights", lambda recipe: recipe.init_from),
        changes="nothing",
    )
    adapt: Callable[[nn.Module], nn.Module] | None = setting(
        None,
        "`adapt(model)` gets the model with these weights and returns the one to train: with adapters, or with frozen "
        "or quantised layers. See docs/guide/finetune.md.",
    )
    density: float | None = setting(
        None,
        "The share of elements that masks and routing select, which a plan cannot know.",
        above=0,
        at_most=1,
        changes="nothing",
    )
    seed: int = setting(0, "Every random number follows from it.", at_least=0)
    init_seed: int | None = setting(
        None, "The seed of the first weights, also of new adapters and heads. With None, that is `seed`.", at_least=0
    )
    data_seed: int | None = setting(
        None,
        "The seed of the data: its order, and what is drawn for each sample and batch. With None, that is `seed`.",
        at_least=0,
    )
    made_corpus: str | None = setting(
        None,
        "The corpus that the recipe made of the user's files. `train` prints what became of them, and three samples.",
        changes="nothing",
        command_line=False,
    )
    about: str = setting("", "One line: what is learned from what.", changes="nothing", command_line=False)
    name: str = setting(
        "recipe", "The name of the recipe. `load_recipe` fills it in.", changes="nothing", command_line=False
    )
    target: str = setting(
        "", "Where the recipe came from. `load_recipe` fills it in.", changes="nothing", command_line=False
    )
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    """The values that a command line gave. `load_recipe` fills it in."""

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        refuse_credentials({**vars(self), **self.knobs})
        for name, each in SETTINGS.items():
            each.refuse_missing(self, name)
        if self.tp > 1 and self.precision == "16-mixed":
            raise RecipeError(
                "precision='16-mixed' does not work with tp: ranks could scale differently; use bf16-mixed"
            )
        if self.tp > 1 and self.multiplies_in_fp8:
            raise RecipeError(
                f"precision={self.precision!r} does not work with tp: each rank would scale its part of a layer by "
                "itself; use dp_shard, or precision=bf16-mixed"
            )
        if self.cp > 1 and self.precision == "fp8":
            raise RecipeError(
                "precision='fp8' does not work with cp: one scale serves a whole tensor, and each rank would scale its "
                "tokens by themselves; use precision=fp8-rowwise or bf16-mixed"
            )
        budget_of(self.recompute)
        self._check_selection()
        self._check_step()
        self.micro_batches()

    def _check_selection(self) -> None:
        """Refuses a choice of the best step for which something is missing."""
        if self.best is None:
            return
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
        own = {name: each.default for name, each in SETTINGS.items() if each.part == "update"}
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
    def is_mixed(self) -> bool:
        """Whether parameters are in float32 and modules compute in a smaller format."""
        return not self.precision.endswith("-true")

    @property
    def multiplies_in_fp8(self) -> bool:
        """Whether linear layers multiply in FP8."""
        return self.precision.startswith("fp8")

    @property
    def schedules_itself(self) -> bool:
        """Whether `schedule` makes a scheduler of torch: it takes one thing only, or the first is named `optimizer`."""
        return callable(self.schedule) and (not takes(self.schedule, 2) or _first(self.schedule) == "optimizer")

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
        """Optimizer updates in the whole run; None if nothing ends it."""
        by_tokens = None if self.max_tokens is None else -(-self.max_tokens // self.tokens_per_step)
        given = [steps for steps in (self.max_steps, by_tokens, self._steps_by_epochs()) if steps is not None]
        return min(given) if given else None

    def _steps_by_epochs(self) -> int | None:
        """Updates in `max_epochs`, rounded up: a step is taken whole."""
        if self.max_epochs is None:
            return None
        if self.epoch_samples is None:
            from surefoot.recipe.first_data import samples_of_epoch, training_data

            samples = samples_of_epoch(training_data(self.data, self.seed_of_data, self.name), self.max_epochs)
            object.__setattr__(self, "epoch_samples", samples)  # once, also for changed copies
        taken = Fraction(str(self.max_epochs)) * int(self.epoch_samples or 0)
        return max(1, math.ceil(taken / self.samples_per_step))

    @property
    def samples_per_step(self) -> int:
        """Samples of one optimizer update, over all ranks."""
        return self.tokens_per_step // self.tokens_per_sample

    @property
    def seed_of_init(self) -> int:
        """The seed of the first weights."""
        return self.seed if self.init_seed is None else self.init_seed

    @property
    def seed_of_data(self) -> int:
        """The seed of the data and its order."""
        return self.seed if self.data_seed is None else self.data_seed


SETTINGS = settings_in(Recipe)
"""Every declared field of a recipe, in its order."""
Recipe.__doc__ = f"{Recipe.__doc__}\n" + "\n".join(f"    {name}: {each.about}" for name, each in SETTINGS.items())
_CHECKS = {name: each.checked() for name, each in SETTINGS.items()}


def _first(function: Callable[..., Any]) -> str:
    """The name of a function's first parameter. Empty if Python cannot say."""
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except ValueError:
        return ""


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


@dataclass(frozen=True)
class RunSoFar:
    """What a callback may know of the run it belongs to."""

    folder: Path
    """The run's directory."""
    step: int
    """The step that was just logged."""
    steps: int
    """The steps of the whole run."""
    recipe: Recipe
    best_step: int
    """The step with the best evaluation so far, if the recipe says what is best; else 0."""
    model: Callable[[], nn.Module] = field(repr=False)
    """Returns a new model in evaluation mode with the weights of this step, averaged if the recipe averages them.

    It is yours: the run goes on with its own.
    """
