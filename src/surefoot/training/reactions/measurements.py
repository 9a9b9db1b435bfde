"""What is measured at some steps besides the loss: layers, the recipe's metrics, and held-out data."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from surefoot.randomness import derive, kept, seed_all
from surefoot.records.layers import Layer, LayersRow
from surefoot.techniques.layers import Layers
from surefoot.training.current_run import CurrentRun
from surefoot.training.opening import Opened
from surefoot.training.reactions.reaction import TakenStep
from surefoot.training.scoring import floats_of, scores_of


class LayersLog:
    """Writes what each layer did in every step that `layers_every` asks for."""

    def __init__(self, opened: Opened, current: CurrentRun) -> None:
        self.step, self.layers, self.current = opened.step, opened.layers, current
        self.measured: Layers | None = None
        """The layers of the step that is being taken; None if it is not measured."""

    def around_step(self) -> AbstractContextManager[object]:
        is_due = (self.step.number + 1) % (self.step.recipe.layers_every or 1) == 0
        self.measured = self.layers if is_due else None
        return self.measured or nullcontext()

    def after_step(self, taken: TakenStep) -> None:
        if self.measured is None:
            return
        row = taken.row
        # the optimizer saw clipped gradients; the record has them whole
        scale = row.grad_norm / row.clipped_norm if row.grad_norm and row.clipped_norm else 1.0
        found = {name: Layer(**figures) for name, figures in self.measured.figures(gradient_scale=scale).items()}
        self.current.writer.append_layers(self.current.run, LayersRow(row.step, row.attempt, found))


class BatchMetrics:
    """Adds the recipe's metrics on the batch of every step that `metrics_every` asks for, after its update."""

    def __init__(self, opened: Opened) -> None:
        self.step = opened.step
        self.batches = list[Any]()

    def see_batch(self, batch: Any) -> None:
        every = self.step.recipe.metrics_every
        if every and (self.step.number + 1) % every == 0:
            self.batches.append(batch)

    def after_step(self, taken: TakenStep) -> None:
        if not self.batches:
            return
        with kept():  # measuring leaves the random state of training as it was
            seed_all(derive(self.step.recipe.seed, "measure"))
            measured = floats_of(self.step.measure(self.batches))
        self.batches.clear()
        taken.row = replace(taken.row, train_metrics={**taken.row.train_metrics, **measured})


class Evaluation:
    """Adds the loss and the metrics on held-out data, at every step that `evaluate_every` asks for and at the last."""

    def __init__(self, opened: Opened) -> None:
        self.step, self.data = opened.step, opened.data

    def after_step(self, taken: TakenStep) -> None:
        row, every = taken.row, self.step.recipe.evaluate_every
        if not every or (row.step % every and row.step != self.step.recipe.steps()):
            return
        scores = scores_of(self.step, self.data)
        if "loss" in scores:
            self.step.held_out(scores["loss"])
        taken.row = replace(row, evaluation_loss=scores.pop("loss", None), metrics=scores)
