"""Replay: takes steps of a run once more, from one of its checkpoints or from step 0. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch

from surefoot.checkpoint.checkpoint import Checkpoint
from surefoot.checkpoint.state import restore
from surefoot.checkpoint.store import Checkpoints
from surefoot.data.batches import Batches, batches_of
from surefoot.errors import CheckpointError
from surefoot.randomness import set_generators
from surefoot.recipe.recipe import SETTINGS, Recipe
from surefoot.recipe.sources import has_state
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.step import Step
from surefoot.training.init_from import with_first_weights
from surefoot.trees import local_part
from surefoot.world.world import World

Numbered = tuple[list[int], Any]
"""A micro-batch with its sample numbers."""


class Replay:
    """The steps of a run again. `step` stands before the next one; `start` puts it where the run once was."""

    def __init__(self, run: Run, recipe: Recipe, world: World) -> None:
        self.run, self.recipe, self.world = run, recipe, world
        self.logged = {row.step: row for row in world.from_first(run.rows)}
        self.started_at = 0

    def start(self, checkpoint: Checkpoint | None) -> None:
        """Builds the step and restores a checkpoint; without one, the step is that of the run's beginning."""
        self._checkpoint = checkpoint
        self.step = Step(self.recipe if checkpoint else with_first_weights(self.recipe), self.world)
        self._saved = None if checkpoint is None else restore(self.step, checkpoint)
        if self._saved is not None:
            set_generators(self._saved["generators"])
        self.started_at = self.step.number
        self._batches, self._at = Batches(iter(())), -1
        self._fetched: list[Numbered] | None = None

    def again(self) -> None:
        """Goes back to where it was started."""
        self.start(self._checkpoint)

    def start_before(self, number: int) -> None:
        """Starts at the newest sound checkpoint before a step, or at step 0 if there is none."""
        self.start(next(sound_checkpoints(self.run, before=number), None))

    def advance(self) -> tuple[float, float | None]:
        """Takes the next step. Returns its loss and its gradient norm."""
        outcome = self.step(self._streamed() if self._fetched is None else (batch for _, batch in self._fetched))
        row = self.logged.get(self.step.number)
        if row is not None and row.evaluation_loss is not None:
            self.step.held_out(row.evaluation_loss)
        self._at, self._fetched = self._at + 1, None
        return outcome.loss.item(), None if outcome.grad_norm is None else outcome.grad_norm.item()

    def advance_to(self, number: int) -> list[int]:
        """Takes all steps up to this one. Returns those whose loss or gradient norm is not that of the log."""
        differing = []
        while self.step.number < number:
            found = self.advance()
            if not is_as_logged(self.logged.get(self.step.number), *found):
                differing.append(self.step.number)
        return differing

    def batches(self) -> list[Numbered]:
        """The micro-batches of the next step, which takes them when it is taken."""
        if self._fetched is None:
            self._open()
            self._fetched = [self._numbered() for _ in range(self.step.micro_batches)]
        return self._fetched

    def batches_of_step(self, number: int) -> list[Numbered] | None:
        """The micro-batches of any step of the run. None if they depend on the data's state."""
        if has_state(self._opened().dataset):
            return None
        batches = self._made(self.run.batch_of(number - 1))
        return [self._numbered(batches) for _ in range(self.step.micro_batches)]

    def _streamed(self) -> Iterator[Any]:
        self._open()
        return (self.world.take(self._batches) for _ in range(self.step.micro_batches))

    def _numbered(self, batches: Batches | None = None) -> Numbered:
        batches = batches or self._batches
        batches.begin_step()
        batch = self.world.take(batches)
        return list(batches.taken), batch

    def _opened(self) -> Batches:
        self._open()
        return self._batches

    def _open(self) -> None:
        """Opens the data of the next step, unless it follows the last one."""
        wanted = self.run.batch_of(self.step.number)
        if self._at == wanted:
            return
        self._at, self._batches = wanted, self._made(wanted)
        if self._saved is not None and "data" in self._saved:
            cast(Any, self._batches.dataset).load_state_dict(self._saved["data"])

    def _made(self, batch: int) -> Batches:
        layout = self.step.layout
        return batches_of(self.recipe, first_step=batch, rank=layout.data_rank, ranks=layout.data_ranks)


@contextmanager
def buffers_kept(step: Step) -> Iterator[None]:
    """Puts buffers back that a forward changes, such as running statistics."""
    before = {each: each.clone() for each in step.model.buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before.items():
                buffer.copy_(value)


def in_one_process(run: Run, recipe: Recipe) -> Recipe:
    """The recipe of a run as one process takes its steps: the whole batch, not sharded and not compiled."""
    tokens = cast(int | None, run.settings.get("global_batch_tokens", recipe.global_batch_tokens))
    usual = {name: each.default for name, each in SETTINGS.items() if each.changes == "layout"}
    alone: dict[str, Any] = usual | {"dp_shard": 1, "tensor_plan": None}
    return replace(recipe, global_batch_tokens=tokens, workers=0, compile="off", fullgraph=False, **alone)


def sound_checkpoints(run: Run, *, before: int) -> Iterator[Checkpoint]:
    """The checkpoints that a step can be replayed from, the newest first. Damaged ones are skipped."""
    for checkpoint in Checkpoints(run.checkpoints):
        if checkpoint.step < before:
            try:
                checkpoint.verify()
            except CheckpointError:
                continue
            yield checkpoint


def is_as_logged(row: LogRow | None, loss: float, grad_norm: float | None) -> bool:
    """Whether a step has the loss and the gradient norm of its row, to the last bit. True without a row."""
    return row is None or (repr(row.loss), repr(row.grad_norm)) == (repr(loss), repr(grad_norm))


def same_bits(one: Any, other: Any) -> bool:
    """Whether two leaves of a state are the same, tensors bit for bit."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(bits_of(one), bits_of(other))


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor as bytes: NaN is equal to the same NaN, and 0 is not equal to -0."""
    return local_part(tensor.detach()).cpu().contiguous().reshape(-1).view(torch.uint8)
