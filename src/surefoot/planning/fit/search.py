"""Search: finds what fits by planning few settings. Every answer was planned, and so was the next larger setting.

On a GPU a margin stays free, for what no plan sees (`Trials.margin`).

| left open          | what is searched for                                                                     |
|--------------------|------------------------------------------------------------------------------------------|
| `micro_batch_size` | the largest that fits; it divides the global batch if the recipe sets one                |
| `recompute`        | the cheapest that fits: `none`, else a budget; and `full`, which allows the largest      |
|                    | micro-batch                                                                              |
| `dp_shard`         | all ranks; if ranks wait for each other, also the ranks of one node, and 1               |
| on GPUs, for the   | `fused`, `compile=blocks`, `loss_chunks`, `reshard_after_forward=false`,                 |
| fastest answer     | `reduce_in=bfloat16`: each is kept if it makes a token faster, or saves memory and costs |
|                    | no time. With what it saves: a larger micro-batch, and less or selective recomputation   |
| `tp`               | on several GPUs: 2, 4 and 8 with `loss_parallel`, if ranks wait or nothing else fits     |
| `offload`          | on GPUs: `activations`, if nothing else fits, with a note on the seconds that it costs   |
| a count of GPUs    | `Nxh100-sxm`: the smallest power of two that fits and stays within the budget            |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, get_args, get_origin

from surefoot.costs.boundary import FURTHEST, Asked, largest_within
from surefoot.costs.pareto import front
from surefoot.errors import RecipeError
from surefoot.hardware.cluster import ANY_COUNT, DEVICES_PER_NODE
from surefoot.planning.fit.trials import Knobs, Trials, budget_text, margin
from surefoot.recipe.knobs import hints_of
from surefoot.recipe.load import find_function
from surefoot.recipe.recipe import Recipe
from surefoot.records.search import Answer, Budget, Search, Trial
from surefoot.techniques.mesh import DIMENSIONS, SHARD
from surefoot.units import bytes_text
from surefoot.world.gpu.target import CPU, targets

MOST_DEVICES = 16384

CHEAPEST = "cheapest recompute"

WORTH_A_TRY = 0.01
"""If a step spends at least this share waiting for other ranks, less sharding is planned too."""

CHUNKS = 8
"""Into how many chunks the loss is cut if it is: the logits of one are then small beside a block's activations."""

GAIN = 0.005
"""An option that makes a token faster by less than this share is not worth its name in a command."""

_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("fused", True),
    ("compile", "blocks"),
    ("loss_chunks", CHUNKS),
    ("reshard_after_forward", False),
    ("reduce_in", "bfloat16"),
)
"""In the order in which they are tried: first those that change nothing but speed and memory."""
_SAVING = ("fused", "loss_chunks", "reduce_in")
_OF_SHARDS = ("reshard_after_forward", "reduce_in")

_GROWS = ("activations", "temporary", "inputs")
_SHARDED = ("parameters", "gradients", "optimizer")


def what_fits(
    recipe: Recipe,
    *,
    on: str | Sequence[str] | None = None,
    budget: Budget | None = None,
    fixed: Collection[str] = (),
    largest: str | None = None,
) -> Search:
    """Plans settings of a recipe to find which fit, and which of those are best.

    `on` names the GPUs; give several names to compare them. Without it, the budget sets the memory. Knobs in `fixed`
    keep the recipe's values. `largest` names a knob, for example `size`: its largest value that fits is searched for
    first. No step runs, and no memory is allocated for the model.
    """
    names = [on] if on is None or isinstance(on, str) else list(on)
    searching = Searching(Trials(recipe, budget or Budget()), set(fixed))
    for name in names:
        searching.search(name, largest)
    return searching.found(compared=len(names) > 1, largest=largest)


class Searching:
    """The trials of a search, and for each answer the next larger trial, which fails."""

    def __init__(self, trials: Trials, fixed: set[str]) -> None:
        self.trials, self.fixed = trials, fixed
        self.beyond: dict[tuple[str, str], Trial] = {}
        """By question and command: the next larger trial, which does not hold."""
        self.held: dict[str, Knobs] = {}
        """By cluster: the knob that was asked for, at its largest value that fits. Other values answer nothing else."""
        self.notes: list[str] = []

    def search(self, on: str | None, largest: str | None) -> None:
        """Searches one cluster. Its count of GPUs may be open."""
        if on is not None and on.startswith(ANY_COUNT):
            on = self.fewest(on.removeprefix(ANY_COUNT))
            if on is None:
                return
        if largest is None:
            self.settle(on, {})
        elif (held := self.largest(on, largest)) is not None:
            self.held[on or CPU] = {largest: held}
            self.settle(on, {largest: held})

    # ------------------------------------------------------------------------------------- one cluster

    def settle(self, on: str | None, knobs: Knobs) -> None:
        """Finds the largest micro-batch with the cheapest recomputation that fits, and with full; then how to shard."""
        if "recompute" in self.fixed or not self.trials.blocks(knobs):
            self.micro_batch(on, knobs)
        else:
            none = {**knobs, "recompute": "none"}
            cheapest = self.micro_batch(on, none)
            fullest = self.micro_batch(on, {**knobs, "recompute": "full"}, start=self._start_of_full(on, none))
            if cheapest is None and fullest is not None:
                self.between(on, {**knobs, "recompute": "full"})
        self.shard(on)
        if targets(on or CPU)[1] is not None:
            self.options(on, knobs)

    def micro_batch(self, on: str | None, knobs: Knobs, *, start: int | None = None) -> Trial | None:
        """The largest that fits, searched from the recipe's own on. The next larger one is planned too."""
        if "micro_batch_size" in self.fixed:
            trial = self.trials.plan(on, knobs)
            return trial if trial.fits else None
        sizes = self.trials.micro_batch_sizes(on, knobs)
        start = start or self.trials.recipe.micro_batch_size
        return self._largest("largest micro-batch", on, sizes, lambda size: {**knobs, "micro_batch_size": size}, start)

    def _start_of_full(self, on: str | None, none: Knobs) -> int | None:
        """A first guess of the largest micro-batch with full recomputation, from what the blocks keep without it."""
        planned = [each for each in self.trials.made.values() if each.on == (on or CPU)]
        trial = next((each for each in planned if none.items() <= each.knobs.items()), None)
        kept = 0.0 if trial is None else self.trials.kept_in_blocks(trial)
        growing = 0.0 if trial is None else self.trials.booked(trial, *_GROWS) - kept
        if trial is None or growing <= 0:
            return None
        times = 1 + (self.trials.limit(on) - trial.memory_bytes + kept) / growing
        return max(1, int(trial.micro_batch_size * min(times, FURTHEST)))

    def between(self, on: str | None, knobs: Knobs) -> None:
        """Finds the way to recompute that fits, costs less than full, and adds the fewest seconds."""
        smallest = self._smallest(on, knobs)
        least, kept = self.trials.plan(on, smallest).memory_bytes, self.trials.recomputations(on, smallest)
        if len(kept) < 2:
            return

        def keeping(size: int) -> Knobs:
            return {**smallest, "recompute": "none" if size == kept[-1] else budget_text(size)}

        start = round(self.trials.limit(on)) - least + kept[0]
        self._largest(CHEAPEST, on, kept[1:], keeping, start, fixed_bytes=least - kept[0])

    def shard(self, on: str | None) -> None:
        """Plans the fastest trial that holds with less sharding, if it waits for other ranks."""
        best = min(self._holding(on), key=_token_seconds, default=None)
        if best is None or best.devices == 1 or self.fixed & {*DIMENSIONS} or self.trials.waiting(best) < WORTH_A_TRY:
            return
        for shards in (DEVICES_PER_NODE, 1):
            held = self.trials.booked(best, *_SHARDED) * best.devices / shards
            if shards < best.devices and best.devices % shards == 0 and held < self.trials.limit(on):
                self.trials.plan(on, {**best.knobs, SHARD: shards})

    # ------------------------------------------------------------------------------------- options of a GPU

    def options(self, on: str | None, knobs: Knobs) -> None:
        """Tries what experts set besides: on the fastest trial, or on the smallest one if nothing fits."""
        best = min(self._holding(on), key=_token_seconds, default=None)
        if best is None:
            least = self.trials.plan(on, self._smallest(on, knobs))
            for name, value in _OPTIONS:
                if name in _SAVING and self._open(on, name):
                    least = self._try(on, {**least.knobs, name: value}) or least
            best = least if least.fits else self.tensor_parallel(on, least) or self.offloaded(on, least)
            if best is None:
                self.notes += self._floor(least)
                return
        taken = self._kept_options(on, best)
        if "recompute" not in self.fixed and "micro_batch_size" not in self.fixed and self.trials.blocks(knobs):
            for way in ("none", "selective"):
                self.micro_batch(on, {**taken, "recompute": way}, start=best.micro_batch_size)
        best = min(self._holding(on), key=_token_seconds)
        if best.devices > 1 and self.trials.waiting(best) >= WORTH_A_TRY:
            self.tensor_parallel(on, best)

    def _kept_options(self, on: str | None, best: Trial) -> Knobs:
        """The knobs of the best trial with every option that helps, each planned on top of those before."""
        for name, value in _OPTIONS:
            if name in best.knobs or not self._open(on, name):
                continue
            trial = self._try(on, {**best.knobs, name: value})
            if trial is None:
                continue
            faster = _token_seconds(trial) / _token_seconds(best) - 1
            saves = trial.memory_bytes < 0.98 * best.memory_bytes and name != "reduce_in"
            if trial.holds and (faster < -GAIN or (saves and faster < GAIN)):
                best = trial
        return {name: value for name, value in best.knobs.items() if name not in ("micro_batch_size", "recompute")}

    def tensor_parallel(self, on: str | None, trial: Trial) -> Trial | None:
        """Plans a trial with its layers split over 2, 4 and 8 ranks of a node. The first that fits."""
        recipe = self.trials.recipe
        if recipe.tensor_plan is None or self.fixed & {*DIMENSIONS} or trial.devices == 1:
            return None
        found = None
        for size in (2, 4, DEVICES_PER_NODE):
            if trial.devices % size == 0 and recipe.precision != "16-mixed" and not recipe.multiplies_in_fp8:
                plain = {name: value for name, value in trial.knobs.items() if name not in ("loss_chunks", SHARD)}
                again = plain.get("recompute", "none")
                way = again if again in ("none", "full", "selective") else "full"
                split = self._try(on, {**plain, "recompute": way, "tp": size, "loss_parallel": True})
                found = found or (split if split is not None and split.fits else None)
        return found

    def offloaded(self, on: str | None, trial: Trial) -> Trial | None:
        """A trial whose activations wait in host memory, with a note on what that costs. None if it does not fit."""
        offloaded = self._try(on, {**trial.knobs, "offload": "activations"}) if self._open(on, "offload") else None
        if offloaded is None or not offloaded.fits:
            return None
        self.notes.append(self.trials.cost_of_offload(trial, offloaded))
        return offloaded

    def _open(self, on: str | None, name: str) -> bool:
        """Whether an option is not set yet and means something here."""
        recipe, ranks = self.trials.recipe, targets(on or CPU)[0]
        if name in self.fixed or getattr(recipe, name) != Recipe.__dataclass_fields__[name].default:
            return False
        mixed = name != "reduce_in" or recipe.is_mixed
        return mixed and (name not in _OF_SHARDS or (ranks > 1 and recipe.dp_shard != 1))

    def _try(self, on: str | None, knobs: Knobs) -> Trial | None:
        """The trial of a setting; None if the recipe does not take it, for example chunks of a loss of another kind."""
        try:
            return self.trials.plan(on, knobs)
        except RecipeError:
            return None

    def _margins(self) -> list[str]:
        """What stays free, for each kind of cluster that was searched."""
        names = dict.fromkeys(trial.on for trial in self.trials.made.values())
        return [
            f"{bytes_text(margin(name))} of each device stay free on {name}: "
            f"{'for NCCL and fragmentation' if targets(name)[0] > 1 else 'for fragmentation'}"
            for name in names
            if margin(name)
        ]

    def _floor(self, trial: Trial) -> list[str]:
        """Why nothing fits: the bytes that no batch and no recomputation change."""
        held, limit = self.trials.booked(trial, *_SHARDED), self.trials.limit(on=trial.on)
        if held <= limit:
            return []
        return [
            f"parameters, gradients and optimizer state alone take {bytes_text(held)} of {bytes_text(limit)} on each "
            f"device: no micro-batch and no recomputation changes that; use more devices (--on Nx...), fewer bytes for "
            "each parameter (precision=bf16-true), or train adapters"
        ]

    # ------------------------------------------------------------------------------------- many clusters, many models

    def fewest(self, device: str) -> str | None:
        """The cluster with the fewest devices, a power of two, on which the recipe fits and stays within the budget."""
        count, low = 1, 0
        while count <= MOST_DEVICES:
            trial = self.trials.plan(f"{count}x{device}", self._smallest(f"{count}x{device}", {}))
            if trial.holds and count // 2 <= low:
                return trial.on
            count, low = (count // 2, low) if trial.holds else (max(2 * count, self._lacking(trial)), count)
        self.notes.append(f"{self.trials.recipe.name} does not fit on {MOST_DEVICES:,} or fewer {device}")
        return None

    def largest(self, on: str | None, knob: str) -> Any:
        """The largest value of a knob that fits, at the smallest micro-batch with full recomputation."""
        values = _values(self.trials.recipe, knob)
        if isinstance(values, range):
            set_now = self.trials.recipe.knobs.get(knob)
            start = set_now if isinstance(set_now, int) else 1
            held = self._largest(f"largest {knob}", on, values, lambda value: self._smallest(on, {knob: value}), start)
            return None if held is None else held.knobs[knob]
        last: Trial | None = None
        refused: RecipeError | None = None
        for value in values:
            try:
                trial = self.trials.plan(on, self._smallest(on, {knob: value}))
            except RecipeError as error:
                refused = error
                self.notes.append(f"{knob}={value} is left out: {error}")
                continue
            if not trial.fits:
                if last is not None:
                    self.beyond[f"largest {knob}", last.command] = trial
                break
            last = trial
        if refused is not None and not self.trials.made:
            raise refused
        return None if last is None else last.knobs[knob]

    def _lacking(self, trial: Trial) -> int:
        """The fewest devices, a power of two, that hold the sharded state and meet the deadline."""
        memory = self.trials.booked(trial, *_SHARDED) / self.trials.limit(trial.on)
        days = max((limit.amount / limit.allowed for limit in trial.limits if limit.name == "days"), default=1.0)
        count = 1
        while count < trial.devices * max(memory, days):
            count *= 2
        return count

    # ------------------------------------------------------------------------------------- shared by all

    def _smallest(self, on: str | None, knobs: Knobs) -> Knobs:
        """Sets the open knobs so that the step takes the least memory."""
        least = dict(knobs)
        if "recompute" not in self.fixed and self.trials.blocks(knobs):
            least["recompute"] = "full"
        if "micro_batch_size" not in self.fixed:
            least["micro_batch_size"] = self.trials.micro_batch_sizes(on, least)[0]
        return least

    def _largest(
        self,
        question: str,
        on: str | None,
        candidates: Sequence[int],
        knobs_of: Callable[[int], Knobs],
        start: int,
        *,
        fixed_bytes: float | None = None,
    ) -> Trial | None:
        """The trial of the largest candidate that fits. Also remembers the next larger trial."""

        def ask(candidate: int) -> Asked:
            trial = self.trials.plan(on, knobs_of(candidate))
            grows = self.trials.booked(trial, *_GROWS) if fixed_bytes is None else trial.memory_bytes - fixed_bytes
            return Asked(candidate, trial.memory_bytes, grows)

        held, over = largest_within(candidates, ask, self.trials.limit(on), start=start)
        if held is None:
            return None
        trial = self.trials.plan(on, knobs_of(held))
        if over is not None:
            self.beyond[question, trial.command] = self.trials.plan(on, knobs_of(over))
        return trial

    def _beyond(self, question: str, trial: Trial, largest: str | None) -> Trial | None:
        """The next larger trial. The next value of a knob is larger than any setting with the value before."""
        if question == f"largest {largest}":
            return next(
                (over for (asked, _), over in self.beyond.items() if (asked, over.on) == (question, trial.on)), None
            )
        return self.beyond.get((question, trial.command))

    def _place(self, knob: str, trial: Trial) -> int:
        """The place of a trial's value among the values of a knob, smallest first."""
        return _values(self.trials.recipe, knob).index(trial.knobs[knob]) if knob in trial.knobs else -1

    def _holding(self, on: str | None) -> list[Trial]:
        """The trials that fit and keep to the budget; if a largest value was found, those with it."""
        made = [trial for trial in self.trials.made.values() if trial.holds and (on is None or trial.on == on)]
        return [trial for trial in made if self.held.get(trial.on, {}).items() <= trial.knobs.items()]

    # ------------------------------------------------------------------------------------- the answers

    def found(self, *, compared: bool, largest: str | None) -> Search:
        """All trials, and the answers among them."""
        holding = self._holding(None)
        questions: dict[str, Callable[[Trial], tuple[float, ...]]] = {}
        if largest is not None:
            questions[f"largest {largest}"] = lambda trial: (-self._place(largest, trial), _token_seconds(trial))
        if any(trial.step_seconds for trial in holding):
            questions["fastest"] = lambda trial: (_token_seconds(trial), trial.memory_bytes)
        questions["largest micro-batch"] = lambda trial: (-trial.micro_batch_size, _token_seconds(trial))
        if compared or len({trial.on for trial in self.trials.made.values()}) > 1:
            questions["fewest devices"] = lambda trial: (trial.devices, _token_seconds(trial))
        if len({trial.on for trial in holding if trial.token_dollars is not None}) > 1:
            questions["cheapest"] = lambda trial: (_token_dollars(trial), _token_seconds(trial))
        best = [(question, min(holding, key=cost)) for question, cost in questions.items() if holding]
        best += [(CHEAPEST, trial) for trial in holding if (CHEAPEST, trial.command) in self.beyond]
        recipe = self.trials.recipe
        return Search(
            recipe=recipe.name,
            about=recipe.about,
            budget=self.trials.budget,
            answers=tuple(Answer(each, trial, self._beyond(each, trial, largest)) for each, trial in best),
            front=tuple(front(holding, _costs)),
            trials=tuple(self.trials.made.values()),
            notes=(*self.notes, *self._margins()),
        )


def _token_seconds(trial: Trial) -> float:
    return 0.0 if trial.token_seconds is None else trial.token_seconds


def _token_dollars(trial: Trial) -> float:
    return math.inf if trial.token_dollars is None else trial.token_dollars


def _costs(trial: Trial) -> tuple[float, ...]:
    """The costs of a setting: memory, time, dollars. If no time is known, FLOPs and the micro-batch stand in for it."""
    if trial.token_seconds is None:
        return trial.memory_bytes, trial.flops_per_token, -trial.micro_batch_size
    return trial.memory_bytes, trial.token_seconds, _token_dollars(trial)


def _values(recipe: Recipe, knob: str) -> Sequence[Any]:
    """The values of a knob, smallest first: those its type hint lists, or whole numbers."""
    hints = hints_of(find_function(recipe.target)) if recipe.target else {}
    hint = hints.get(knob)
    if get_origin(hint) is Literal:
        return get_args(hint)
    if int in (hint, *get_args(hint)):
        return range(1, 2**31)
    raise RecipeError(
        f"{recipe.name} has no knob {knob!r} with values to search: a Literal, or whole numbers; "
        f"its knobs: {', '.join(hints) or 'none, since it was not loaded by name'}"
    )
