"""Records forwards without gradients: their mode, and whether they belong to a training step."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.evaluation import Evaluation, EvaluationFacts
from surefoot.checks.loop.forwards import random_state
from surefoot.checks.loop.modes import active, dropping
from surefoot.checks.samples.arrays_in_sight import row_prints
from surefoot.checks.samples.loaders import Loaders
from surefoot.events.callers import user_lines
from surefoot.torch_inside.autograd import writes

_FEWEST_ROWS = 8


@dataclass
class _Run:
    """One forward without gradients."""

    model: weakref.ref[nn.Module]
    seen: Evaluation
    place: int
    """A hash of the inputs, the running lines, and the version counters of the weights."""
    batches: int
    """The number of batches that loaders had returned by then."""
    inputs: WeakNotes[None] = field(default_factory=WeakNotes)


class Evaluations(Observer):
    """Records what models are run on without gradients."""

    after = (Loaders,)
    waits = True

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self._runs: list[_Run] = []
        self._returned: WeakNotes[Evaluation] = WeakNotes()
        """Outputs of models in training mode."""
        self._state = 0
        self._updated_at = 0
        """The number of batches that loaders had returned at the last update."""

    @property
    def seen(self) -> list[Evaluation]:
        return [each.seen for each in self._runs]

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Marks an evaluation as used when a function gets its output."""
        for each in tensors((args, kwargs)) if self._returned else ():
            if (evaluation := self._returned.get(each)) is not None:
                evaluation.used = True

    def model_called(self, model: nn.Module, args: Args) -> None:
        if torch.is_grad_enabled():
            self._trains(args)
        else:
            self._state = random_state()

    def _trains(self, args: Args) -> None:
        """If an evaluation used the batch that is trained on now, it is part of the step, as for pseudo-labels."""
        fresh = self._loaders.handed_out > self._updated_at
        for run in reversed(self._runs):
            if run.seen.update != self.scene.updates:
                return
            of_batch = fresh and run.batches == self._loaders.handed_out and run.seen.samples in self._loaders.lengths
            run.seen.in_step |= of_batch or any(each in run.inputs for each in tensors(args))

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if torch.is_grad_enabled():
            return
        drew = random_state() != self._state
        found = (active(model) or (dropping(model) if drew else ())) if model.training else ()
        place = _place(model, (args, kwargs)) if found or drew else 0
        before = next((each for each in reversed(self._runs) if each.model() is model), None)
        again = before is not None and place != 0 and (before.seen.update, before.place) == (self.scene.updates, place)
        given = [each for each in tensors((args, kwargs)) if each.dim()]
        seen = Evaluation(self.scene.name(model), found, self.scene.updates, repeated=again)
        seen.samples = max(map(len, given), default=0)
        run = _Run(weakref.ref(model), seen, place, self._loaders.handed_out)
        self._runs.append(run)
        if found:
            run.inputs.put(given, None)
            seen.repeated |= any(_is_tiled(each) for each in given if readable(each))
            if returned := list(tensors(output)):
                self._returned.put(returned, seen)
                seen.used = False

    def update_ends(self, optimizer: Optimizer) -> None:
        self._updated_at = self._loaders.handed_out

    def settle(self) -> None:
        """Fills in what is only known at the end."""
        optimized = self.scene.optimized()
        trained = {_build(each) for each in self.scene.phases.models if not optimized.isdisjoint(each.parameters())}
        for run in self._runs:
            alive = run.model()
            run.seen.trained = alive is not None and not optimized.isdisjoint(alive.parameters())
            run.seen.copied = alive is not None and not run.seen.trained and _build(alive) in trained

    def facts(self) -> Iterator[EvaluationFacts]:
        yield EvaluationFacts(evaluations=tuple(self.seen))


def _build(model: nn.Module) -> tuple[type, tuple[torch.Size, ...]]:
    """What a model and its copies have in common."""
    return type(model), tuple(each.shape for each in model.parameters())


def _place(model: nn.Module, given: object) -> int:
    weights = tuple(map(writes, model.parameters()))
    return hash((user_lines(), weights, *(digest(each) for each in tensors(given) if readable(each))))


def _is_tiled(values: torch.Tensor) -> bool:
    """Does each row occur equally often, and more than once? Then samples pass through dropout several times."""
    if len(values) < _FEWEST_ROWS or values[0].numel() < 2:
        return False
    times = set(Counter(row_prints(values)).values())
    return len(times) == 1 and times.pop() > 1
