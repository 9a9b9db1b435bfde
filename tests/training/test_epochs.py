"""Epochs: how many steps they are, that a step may hold two of them, and seeds for weights and data apart."""

import dataclasses

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

import surefoot
from surefoot import Recipe, load_recipe
from surefoot.errors import RecipeError, RunError
from surefoot.recipe.build import build_model
from tests.resumed import assert_same_bits, told

SAMPLES = 10


def recipe(**settings) -> Recipe:
    given = {"micro_batch_size": 4, "max_epochs": 2.5, "save_every": 2, **settings}
    return Recipe(
        model=lambda: torch.nn.Linear(1, 1),
        data=lambda: TensorDataset(torch.arange(float(SAMPLES))[:, None]),
        loss=lambda model, batch: (model(batch[0]) - batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
        **given,
    )


@pytest.mark.parametrize(
    ("epochs", "size", "steps"), [(1, 4, 3), (2, 4, 5), (2.5, 4, 7), (0.1, 4, 1), (3, 10, 3), (1, 11, 1), (0.7, 1, 7)]
)
def test_epochs_are_steps_rounded_up(epochs, size, steps):
    assert recipe(max_epochs=epochs, micro_batch_size=size).steps() == steps
    assert dataclasses.replace(recipe(max_epochs=epochs, micro_batch_size=size), max_steps=2).steps() == min(2, steps)


def test_epochs_count_whole_updates_not_micro_batches(tmp_path):
    accumulated = recipe(max_epochs=3, micro_batch_size=2, global_batch_tokens=6)
    assert accumulated.steps() == 5
    run = surefoot.train(accumulated, path=str(tmp_path / "run"))
    assert (run.steps, run.tokens) == (5, 30)
    assert run.choices[0] == "epochs: 3 of 10 samples, 5 steps of 6"


def test_epochs_that_end_inside_a_step_resume_to_the_bit(tmp_path):
    """Steps 3, 5 and 7 hold samples of two epochs, or more than the epochs asked for."""
    assert_same_bits(recipe(), tmp_path, 3, 5, 6)


def test_each_sample_comes_once_per_epoch_also_across_a_step(tmp_path):
    seen = list[float]()

    def loss(model, batch):
        seen.extend(batch[0].flatten().tolist())
        return model(batch[0]).mean()

    surefoot.train(dataclasses.replace(recipe(max_epochs=2), loss=loss), path=str(tmp_path / "run"))
    assert [sorted(seen[first : first + SAMPLES]) for first in (0, SAMPLES)] == [list(map(float, range(SAMPLES)))] * 2
    assert seen[:SAMPLES] != seen[SAMPLES:]


def test_plan_and_run_say_the_same_of_epochs(tmp_path):
    said = "epochs: 2.8 of 10 samples, 7 steps of 4; the last step takes 3 samples more"
    assert said in surefoot.plan(recipe()).choices
    assert surefoot.plan(recipe()).steps == 7
    assert said in surefoot.train(recipe(), path=str(tmp_path / "run")).choices


def test_other_epochs_are_another_run(tmp_path):
    surefoot.train(recipe(), path=str(tmp_path / "run"))
    with pytest.raises(RunError, match=r"max_epochs was 2.5 and is 3"):
        surefoot.train(recipe(max_epochs=3), path=str(tmp_path / "run"))


def test_a_stream_has_no_epochs():
    class Stream(IterableDataset):
        def __iter__(self):
            yield torch.zeros(1)

    with pytest.raises(RecipeError, match="max_epochs=2 needs data with a length, and Stream has none; set max_steps"):
        dataclasses.replace(recipe(max_epochs=2), data=Stream).steps()


def test_a_command_line_with_epochs_overrules_the_steps_of_the_recipe():
    loaded = load_recipe("regression", ["max_epochs=2"])
    assert (loaded.max_steps, loaded.max_epochs, "max_steps" in loaded.knobs) == (None, 2.0, False)
    with pytest.raises(RecipeError, match="max_steps=5 and max_epochs=2 each end the run: give one of them"):
        load_recipe("regression", ["max_epochs=2", "max_steps=5"])


# ------------------------------------------------------------------------------------------- seeds


def test_seeds_of_weights_and_data_can_be_kept_apart(tmp_path):
    def parts(**seeds):
        made = recipe(max_epochs=1, **seeds)
        run = surefoot.train(made, path=str(tmp_path / "-".join(f"{name}{seed}" for name, seed in seeds.items())))
        return build_model(made).weight.item(), [row.samples_digest for row in run.rows()]

    (weight, order), (other, shuffled) = parts(seed=1), parts(seed=2)
    assert weight != other
    assert order != shuffled
    assert parts(seed=2, init_seed=1) == (weight, shuffled)
    assert parts(seed=2, data_seed=1) == (other, order)
    assert parts(seed=3, init_seed=1, data_seed=1) == (weight, order)
    assert parts(seed=1, init_seed=1, data_seed=1) == (weight, order)


def test_a_seed_that_is_given_as_it_would_be_changes_no_bit(tmp_path):
    alone, given = (
        surefoot.train(recipe(seed=4, **seeds), path=str(tmp_path / str(len(seeds))))
        for seeds in ({}, {"init_seed": 4, "data_seed": 4})
    )
    assert told(alone) == told(given)
