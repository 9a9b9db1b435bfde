"""What a recipe makes is made from its seed alone, whatever was drawn before, in every way and after every kill."""

import dataclasses
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset, default_collate

import surefoot
from surefoot import Recipe
from surefoot.recipe.build import build_data, build_evaluation, build_model

ROOT = Path(__file__).parents[2]


def drawn(samples: int) -> TensorDataset:
    """Data as a newcomer writes it: drawn from three global generators, none of them seeded."""
    labels = torch.tensor([random.randrange(2) for _ in range(samples)])
    noise = torch.as_tensor(np.random.normal(size=(samples, 2)), dtype=torch.float32)
    return TensorDataset(torch.cat([torch.randn(samples, 2), noise], 1), labels)


def class_loss(model, batch):
    features, labels = batch
    return nn.functional.cross_entropy(model(features), labels, reduction="sum"), len(labels)


def recipe(**changes) -> Recipe:
    made = Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        data=lambda: drawn(64),
        evaluation=lambda: drawn(32),
        evaluate_every=2,
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        micro_batch_size=8,
        max_steps=9,
        save_every=3,
        name="drawn",
    )
    return dataclasses.replace(made, **changes)


def tensors(made) -> list[torch.Tensor]:
    return list(made.state_dict().values()) if isinstance(made, nn.Module) else list(made.tensors)


@pytest.mark.parametrize("build", [build_model, build_data, build_evaluation])
def test_what_is_built_depends_on_the_seed_alone(build):
    first = tensors(build(recipe()))
    torch.randn(7), np.random.rand(3), random.random()
    second, other = tensors(build(recipe())), tensors(build(recipe(seed=1)))
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert not all(torch.equal(*pair) for pair in zip(first, other, strict=True))


def test_training_data_and_evaluation_data_are_drawn_apart():
    assert not torch.equal(build_data(recipe()).tensors[0][:32], build_evaluation(recipe()).tensors[0])


def test_building_data_leaves_the_generators_alone():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    build_data(recipe())
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())


def test_only_one_file_makes_what_a_recipe_makes():
    """Whoever calls `recipe.data()` directly gets data from whatever random state is left."""
    calls = re.compile(r"recipe\.(model|data|evaluation)\(\)")
    allowed = {"recipe/build.py", "training/overfit.py"}  # overfit makes a recipe from a recipe, which build.py builds
    source = ROOT / "src/surefoot"
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if calls.search(path.read_text())}
    assert found <= allowed


class Stop(Exception):
    pass


def in_parts(made: Recipe, path: Path, stop: int):
    def tell(run, row):
        if row.step == stop:
            raise Stop

    with pytest.raises(Stop):
        surefoot.train(made, path=str(path), tell=tell)
    torch.randn(5), np.random.rand(2), random.random()
    return surefoot.train(made, path=str(path))


def told(run) -> list[tuple]:
    return [(row.step, row.loss, row.grad_norm, row.evaluation_loss) for row in run.rows()]


def assert_same_bits(made: Recipe, tmp_path: Path) -> None:
    alone = surefoot.train(made, path=str(tmp_path / "alone"))
    parts = in_parts(made, tmp_path / "parts", 5)
    assert told(parts) == told(alone)
    assert parts.weights.read_bytes() == alone.weights.read_bytes()


def test_data_that_is_drawn_when_it_is_made_resumes_to_the_same_bits(tmp_path):
    assert_same_bits(recipe(), tmp_path)


class Rows(Dataset):
    """Draws nothing, says so, and hands out many samples at once: the quickest way through the loader."""

    draws_randomness = False

    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int):
        return torch.full((4,), float(number)), number % 2

    def __getitems__(self, numbers):
        return [self[int(number)] for number in numbers]


def masking(samples):
    """A collate function that hides words at random, as masked language models do."""
    features, labels = default_collate(samples)
    hidden = torch.rand(len(features), 4) < 0.5
    return features.masked_fill(hidden, random.random() + np.random.rand()), labels


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("data", [Rows, lambda: drawn(64)], ids=["gathered", "one by one"])
def test_a_collate_function_that_draws_resumes_to_the_same_bits(data, workers: int, tmp_path):
    assert_same_bits(recipe(data=data, collate=masking, workers=workers), tmp_path)
