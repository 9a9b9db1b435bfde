"""Precision: what is said to stay in float32 does."""

import pytest
import torch
import torch.nn.functional as F

from surefoot.step import Step
from surefoot.techniques.precision import autocast, in_float32
from surefoot.world.world import World

CPU = torch.device("cpu")


def computed_in() -> dict[str, torch.dtype]:
    """The format of each operator's result under autocast on the CPU."""
    x, classes = torch.randn(4, 8), torch.randint(0, 8, (4,))
    with autocast("bf16-mixed", CPU):
        h, q = F.linear(x, torch.randn(8, 8)), torch.randn(1, 2, 4, 8)
        results = {
            "product": h,
            "convolution": F.conv1d(torch.randn(1, 3, 8), torch.randn(3, 3, 3)),
            "attention": F.scaled_dot_product_attention(q, q, q),
            "norm": F.layer_norm(h, (8,), torch.ones(8), torch.zeros(8)),
            "softmax": h.softmax(-1),
            "loss": F.cross_entropy(h, classes),
            "squared loss": F.mse_loss(h, h),
            "product over elements": h.prod(),
            "embedding": F.embedding(classes, torch.randn(8, 8)),
        }
    return {name: result.dtype for name, result in results.items()}


def test_autocast_on_the_cpu_is_as_the_words_say():
    """If this fails, torch has changed autocast's lists: correct the words in techniques/precision.py."""
    formats = computed_in()
    small = {name for name, dtype in formats.items() if dtype is torch.bfloat16}
    assert small == {"product", "convolution", "attention", "norm", "softmax"}
    assert in_float32("bf16-mixed", CPU) == (
        "parameters, gradients, optimizer state; results of embeddings, losses and products over elements"
    )
    assert "norms, softmax, losses" in in_float32("16-mixed", torch.device("cuda"))


@pytest.mark.parametrize(
    ("precision", "kept"),
    [
        ("32-true", torch.float32),
        ("bf16-mixed", torch.float32),
        ("16-mixed", torch.float32),
        ("bf16-true", torch.bfloat16),
    ],
)
def test_parameters_gradients_and_optimizer_state_have_one_format(precision, kept, small_recipe):
    recipe = small_recipe("sentiment", f"precision={precision}")
    gradients = set()
    with World() as world:
        step = Step(recipe, world)
        for parameter in step.parameters:
            parameter.register_post_accumulate_grad_hook(lambda each: gradients.add(each.grad.dtype))
        batch = next(iter(torch.utils.data.DataLoader(recipe.data(), batch_size=4)))
        step([batch])
        state = {
            tensor.dtype
            for moments in step.optimizer.state.values()
            for name, tensor in moments.items()
            if name != "step"
        }
    assert {parameter.dtype for parameter in step.parameters} == gradients == state == {kept}
