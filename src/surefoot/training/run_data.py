"""The data of a run: the micro-batches of each training step, the held-out ones, and the identity of both data sets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sized
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from torch.utils.data import Dataset

from surefoot.checkpoint.outline import take_apart, to_json
from surefoot.data.batches import Batches, batches_in, batches_of, micro_batches
from surefoot.data.identity import identity_of
from surefoot.errors import CheckpointError, RecipeError
from surefoot.recipe.build import build_evaluation, build_test
from surefoot.recipe.sources import has_state
from surefoot.records.data_identity import DataIdentity
from surefoot.records.run import Run
from surefoot.step import Step


class RunData:
    """Feeds one rank of a run. `batch` counts the steps' worth of data that were taken or skipped."""

    def __init__(self, step: Step) -> None:
        self.recipe, self.step = step.recipe, step
        self.batches = Batches(iter(()))
        self.batch = 0
        self.seconds = 0.0

    def open(self, run: Run) -> None:
        """Opens the micro-batches from the next step on. Batches that the run skips after a spike are left out."""
        self.batches.close()
        self.batch = run.batch_of(self.step.number)
        self.batches = self._batches(ahead=True)
        self.batches.hashed = True
        if has_state(self.batches.dataset):
            self._refuse_for_a_state()

    def _refuse_for_a_state(self) -> None:
        """Raises if the data has a state that could not be saved, or not be put back when it is needed."""
        if self.step.world.ranks > 1:
            raise RecipeError(
                f"data with a state runs on one rank, and these are {self.step.world.ranks}: write it as a function of "
                "the micro-batch, batch(number, size)"
            )
        if self.recipe.rewind:
            raise RecipeError("rewind=True skips samples, and data with a state cannot skip them: leave it out")
        try:
            to_json(take_apart(self.state)[0])
        except CheckpointError as error:
            raise RecipeError(f"state_dict() of the data cannot be saved: {error}") from error

    @property
    def state(self) -> dict[str, Any]:
        """The state of the data, for a checkpoint. Empty if it has none."""
        data = cast(Any, self.batches.dataset)
        return {"data": data.state_dict()} if has_state(data) else {}

    def put_back(self, state: dict[str, Any] | None) -> None:
        """Gives data with a state the one that a checkpoint holds. Without a checkpoint, it has its first one."""
        data = cast(Any, self.batches.dataset)
        if state is not None and has_state(data):
            data.load_state_dict(state["data"])

    def load_with(self, workers: int, run: Run) -> None:
        """Goes on with another number of loader processes, from the next step on. The batches stay the same."""
        self.recipe = replace(self.recipe, workers=workers)
        self.open(run)

    def close(self) -> None:
        """Stops the workers that load ahead."""
        self.batches.close()

    def begin_step(self) -> None:
        """Resets the seconds and samples before a step."""
        self.seconds = 0.0
        self.batches.begin_step()

    def of_step(self) -> Iterator[Any]:
        """The micro-batches of one step; `seconds` adds up the time spent waiting for them."""
        for _ in range(self.step.micro_batches):
            began = time.perf_counter()
            batch = self.step.world.take(self.batches)
            self.seconds += time.perf_counter() - began
            yield batch

    def step_taken(self, run: Run) -> None:
        """Moves on to the data of the next step."""
        self.batch += 1
        if self.batch in run.passed_over:
            self.open(run)

    def again(self) -> Iterator[tuple[list[int], Any]] | None:
        """The micro-batches of the current step once more, each with its sample numbers. None if a state made them."""
        return None if has_state(self.batches.dataset) else self._numbered(self._batches())

    def held_out_batches(self) -> tuple[Iterator[Any], int]:
        """This rank's micro-batches of the evaluation data, and how many count over all ranks. The same each time."""
        return self._scored(self.held_out, self.recipe.evaluation_batches)

    def test_batches(self, name: str) -> tuple[Iterator[Any], int]:
        """This rank's micro-batches of the test data of this name, each sample once."""
        return self._scored(build_test(self.recipe, name), None)

    def _scored(self, dataset: Dataset[Any], most: int | None) -> tuple[Iterator[Any], int]:
        recipe, layout = self.recipe, self.step.layout
        if has_state(dataset):
            raise RecipeError("evaluation and test data must be the same each time: they may not have a state")
        batches = micro_batches(
            dataset,
            size=recipe.micro_batch_size,
            seed=recipe.seed_of_data,
            collate=recipe.collate,
            rank=layout.data_rank,
            ranks=layout.data_ranks,
            once=most is None,
        )
        most = most or batches_in(len(cast(Sized, dataset)), recipe.micro_batch_size)
        each = -(-most // layout.data_ranks)
        return (self.step.world.take(batches) for _ in range(each)), most

    @cached_property
    def held_out(self) -> Dataset[Any]:
        return build_evaluation(self.recipe)

    def identities(self, run: Run) -> tuple[DataIdentity, DataIdentity | None]:
        """Identifies the data, and the evaluation data if the run evaluates. Takes about a second, unless
        the recipe asks for all samples.
        """
        assert self.batches.dataset is not None
        data = self._identity(self.batches.dataset, run.data_identity)
        evaluates = self.recipe.evaluate_every is not None
        return data, self._identity(self.held_out, run.evaluation_identity) if evaluates else None

    def _identity(self, dataset: Dataset[Any], before: DataIdentity | None) -> DataIdentity:
        items = before.items if before is not None and before.items else None
        whole = self.recipe.data_identity == "all"
        return identity_of(
            dataset, seed=self.recipe.seed_of_data, workers=self.recipe.loaders, items=items, whole=whole
        )

    def _batches(self, *, ahead: bool = False) -> Batches:
        layout = self.step.layout
        return batches_of(
            self.recipe, first_step=self.batch, ahead=ahead, rank=layout.data_rank, ranks=layout.data_ranks
        )

    def _numbered(self, batches: Batches) -> Iterator[tuple[list[int], Any]]:
        for _ in range(self.step.micro_batches):
            batches.begin_step()
            batch = self.step.world.take(batches)
            yield list(batches.taken), batch
