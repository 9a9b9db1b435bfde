"""After a plan of 4-bit layers, real 4-bit layers compute: no table that bitsandbytes keeps is left fake."""

import gc
import itertools
from contextlib import ExitStack

import pytest
import torch

from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.world.card.card import Card
from surefoot.world.world import FakeWorld

bnb = pytest.importorskip("bitsandbytes")
functional = pytest.importorskip("bitsandbytes.functional")

from surefoot.finetuning import four_bit  # noqa: E402  needs bitsandbytes


def forget() -> None:
    """Makes this process one that has quantised nothing yet, whatever ran here before."""
    import bitsandbytes.backends.default.ops as kernels
    import bitsandbytes.backends.utils as tables

    functional.name2qmap.clear()
    tables._code_4bit_cache.clear()
    kernels._get_4bit_quantize_bounds.cache_clear()
    four_bit._make_tables.cache_clear()


def quantised(weight: torch.Tensor) -> torch.Tensor:
    """By bitsandbytes alone, as a script does it."""
    return functional.dequantize_4bit(*functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=True))


def through_a_layer_of_ours(weight: torch.Tensor) -> torch.Tensor:
    plain = torch.nn.Linear(*weight.shape, bias=False)
    plain.weight = torch.nn.Parameter(weight)
    return four_bit.FourBitLinear(plain, torch.float32)(weight)


def a_recipe_of_ours() -> None:
    with FakeWorld():
        assert isinstance(through_a_layer_of_ours(torch.randn(256, 256)), FakeTensor)


def a_recipe_of_a_user() -> None:
    with FakeWorld():
        assert isinstance(quantised(torch.randn(256, 256)), FakeTensor)


def a_script(*, fails: bool = False) -> None:
    card = Card(None)
    with ExitStack() as entered:
        for each in (card, *card.below, *card.above):
            entered.enter_context(each)
        layer = bnb.nn.Linear4bit(2048, 2048, bias=False, quant_type="nf4").to("cuda")
        assert isinstance(layer(torch.randn(4, 2048, device="cuda")), FakeTensor)
        if fails:
            raise ZeroDivisionError


def a_script_that_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        a_script(fails=True)


PLANS = (a_recipe_of_ours, a_recipe_of_a_user, a_script, a_script_that_fails)
ORDERS = (*itertools.permutations(PLANS, 1), *itertools.permutations(PLANS[:3]))


@pytest.mark.parametrize("compute", [quantised, through_a_layer_of_ours])
@pytest.mark.parametrize("plans", ORDERS, ids=lambda plans: "-".join(plan.__name__ for plan in plans))
def test_real_layers_after_plans_are_real(plans, compute):
    weight = torch.arange(64 * 64, dtype=torch.float32).view(64, 64).sin()
    forget()
    expected = compute(weight)
    forget()
    for plan in plans:
        plan()
    made = compute(weight)
    assert type(made) is torch.Tensor
    assert torch.equal(made, expected)


@pytest.mark.parametrize("plan", PLANS)
def test_no_fake_tensor_outlives_a_plan(plan):
    """Whatever keeps one for the process would be found here, in a library that nobody thought of too."""
    forget()
    gc.collect()
    before = {id(each) for each in gc.get_objects() if type(each) is FakeTensor}
    plan()
    gc.collect()
    assert [each.shape for each in gc.get_objects() if type(each) is FakeTensor and id(each) not in before] == []
