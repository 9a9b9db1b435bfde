"""The update does not depend on how it was cut, recomputed or compiled."""

import dataclasses
import shutil

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from surefoot import Recipe
from surefoot.recipes.gpt import GPT
from surefoot.step import Step
from surefoot.world.world import World

pytestmark = pytest.mark.sweep

IGNORED = -100
TOLERANCE = 1e-5


def sequences(count: int = 64, longest: int = 64) -> list[torch.Tensor]:
    """Sequences of very different lengths, the short ones first: the worst order to average means in."""
    generator = torch.Generator().manual_seed(3)
    lengths = [3 + (longest - 3) * (number // 8) // max(1, count // 8 - 1) for number in range(count)]
    return [torch.randint(0, 50, (min(length, longest),), generator=generator) for length in lengths]


def padded(part: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = nn.utils.rnn.pad_sequence([each[:-1] for each in part], batch_first=True)
    targets = nn.utils.rnn.pad_sequence([each[1:] for each in part], batch_first=True, padding_value=IGNORED)
    return tokens, targets


def token_loss(model, batch):
    tokens, targets = batch
    scores = model(tokens).flatten(0, 1)
    summed = F.cross_entropy(scores, targets.flatten(), ignore_index=IGNORED, reduction="sum")
    return summed, (targets != IGNORED).sum()


def mean_loss(model, batch):
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def language(**changes) -> Recipe:
    plain = Recipe(
        model=lambda: GPT(50, 2, 32, 2, 64),
        data=lambda: None,
        loss=token_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    )
    return dataclasses.replace(plain, **changes)


def update(recipe: Recipe, batches) -> torch.Tensor:
    """How one step moves all parameters."""
    with World() as world:
        step = Step(recipe, world)
        before = [each.detach().clone() for each in step.parameters]
        step(batches)
        return torch.cat([(now.detach() - then).flatten() for now, then in zip(step.parameters, before, strict=True)])


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return (torch.linalg.vector_norm(one - other) / torch.linalg.vector_norm(one)).item()


def cut(samples: list[torch.Tensor], size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [padded(samples[start : start + size]) for start in range(0, len(samples), size)]


def test_sequences_of_different_lengths_give_one_update_however_they_are_cut():
    """64 micro-batches of 1, 16 of 4, 8 of 8, and 1 of 64."""
    whole, *others = (update(language(), cut(sequences(), size)) for size in (64, 1, 4, 8))
    for other in others:
        assert difference(whole, other) < TOLERANCE


def test_a_mean_of_means_would_not():
    """That the test above can fail: the loss as a mean, which counts every micro-batch as one."""
    one, many = (update(language(loss=mean_loss), cut(sequences(), size)) for size in (64, 8))
    assert difference(one, many) > 0.01


def rows_loss(model, batch):
    x, y = batch
    return (model(x) - y).square().sum(), len(x)


def dense(width: int, depth: int) -> Recipe:
    def model() -> nn.Module:
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
        return nn.Sequential(*layers, nn.Linear(width, 1))

    return Recipe(
        model=model,
        data=lambda: None,
        loss=rows_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    )


@settings(max_examples=15, deadline=None)
@given(
    size=st.sampled_from([1, 2, 4, 8, 16]), width=st.integers(1, 12), depth=st.integers(1, 3), seed=st.integers(0, 99)
)
def test_any_small_model_and_any_cut(size, width, depth, seed):
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(32, width, generator=generator), torch.randn(32, 1, generator=generator)
    pieces = list(zip(x.split(size), y.split(size), strict=True))
    assert difference(update(dense(width, depth), [(x, y)]), update(dense(width, depth), pieces)) < TOLERANCE


def test_four_times_64_is_one_batch_of_256():
    x, y = torch.randn(256, 8), torch.randn(256, 1)
    pieces = list(zip(x.split(64), y.split(64), strict=True))
    assert difference(update(dense(8, 2), [(x, y)]), update(dense(8, 2), pieces)) < TOLERANCE


class Dropping(GPT):
    """The same model with dropout before its head and in its blocks."""

    def __init__(self):
        super().__init__(50, 3, 32, 2, 64)
        for block in self.blocks:
            block.mlp.append(nn.Dropout(0.2))


@pytest.mark.sweep
@pytest.mark.parametrize("way", ["full", "selective", "budget=0.4"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_recomputing_changes_no_bit_of_the_update_with_dropout_on(way, precision):
    recipe = language(model=Dropping, precision=precision)
    batches = cut(sequences(16), 8)
    assert torch.equal(update(recipe, batches), update(dataclasses.replace(recipe, recompute=way), batches))


compiles = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="inductor needs a compiler")


@compiles
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the compiler itself
@pytest.mark.parametrize("way", ["blocks", pytest.param("whole", marks=pytest.mark.long)])
def test_compiling_changes_the_update_by_rounding_only(way):
    batches = [tuple(part.contiguous() for part in padded(sequences(8)[-4:]))] * 2
    recipe = language(model=lambda: GPT(50, 2, 32, 2, 64))
    assert difference(update(recipe, batches), update(dataclasses.replace(recipe, compile=way), batches)) < TOLERANCE


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("way", "recompute"), [("blocks", "full"), ("whole", "selective"), ("blocks", "budget=0.5")])
def test_compiling_and_recomputing_go_together(way, recompute):
    """Traced and split into forward and backward as for compiling, but each part run as it is."""
    torch.compiler.reset()
    batches = [padded(sequences(8)[-4:])] * 2
    with torch.compiler.set_stance(force_backend="aot_eager"):
        both = update(language(compile=way, recompute=recompute), batches)
    torch.compiler.reset()
    assert difference(update(language(), batches), both) < TOLERANCE
