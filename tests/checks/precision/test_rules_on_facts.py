"""The rules of precision on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.facts.precision import Coarse, PrecisionFacts
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import backward, forward, layout, loss, scaling, update, updates

rule = Rules()


@pytest.mark.parametrize("shown", rule.shown)
def test_a_rule_reports_the_facts_of_its_bug(shown):
    shown.holds()


@pytest.mark.parametrize("spared", rule.spared)
def test_it_spares_the_nearest_facts_that_are_fine(spared):
    spared.holds()


@pytest.mark.parametrize("limited", rule.limits)
@settings(max_examples=10, deadline=None, database=None)
@given(data=st.data())
def test_a_number_counts_from_its_limit_on(limited, data):
    limited.holds(data)


@rule(
    "float16-without-scaler",
    "1 forward call that led to an update ran in float16, and no loss was scaled",
    "Net",
    severity="error",
    spared=[but(float16=False), but(trained=False), but(backpropagated=False), but(scaler=scaling()),
            but(weight=-64.0), but(by_hand=64.0)],
    limits={"weight": Limit(8.0, 7.99)},
)  # fmt: skip
def _(weight=1.0, by_hand=1.0, scaler=None, **fields):
    half = forward(**{"float16": True, "trained": True, "backpropagated": True, **fields})
    asked = LossFacts(losses=(loss(weights=[weight]),), reductions=(loss(function="mean", weights=[by_hand]),))
    return LoopFacts(forwards=(forward(), half)), asked, PrecisionFacts(scaling=scaler)


@rule(
    "low-precision-positions",
    "positions up to 1,024 are counted in bfloat16",
    "model.py:3",
    spared=[but(kind="sum")],
    also=[also("the frequencies inv_freq were cast to half", at="Net.inv_freq", kind="sum", cast=("inv_freq",))],
)
def _(kind="positions", cast=()):
    coarse = Coarse(kind, "model.py:3", "bfloat16", 1024.0)
    return ModelFacts(layouts=(layout(coarse_positions=cast),)), PrecisionFacts(coarse=(coarse,))


@rule(
    "low-precision-running-sum",
    "a running sum in bfloat16 spans several batches; it reached 256",
    "train.py:11",
    spared=[but(kind="positions")],
)
def _(kind="sum"):
    return PrecisionFacts(coarse=(Coarse(kind, "train.py:11", "bfloat16", 256.0),))


@rule(
    "overflowing-mask-value",
    "-1e+09 does not fit into float16",
    "model.py:5",
    spared=[but(kind="sum"), but(value=-math.inf)],
    also=[
        also("-1e+09 does not fit into float16", severity="error", nonfinite=("body.weight",)),
        also("rows in which every entry is masked", severity="error", value=-math.inf, nonfinite=("body.weight",)),
        also("rows in which every entry is masked", severity="error", value=-math.inf, reached=math.nan),
        also("rows in which every entry is masked", severity="error", value=-math.inf, skipped=1),
    ],
)
def _(kind="mask", value=-1e9, nonfinite=(), reached=1.0, skipped=0):
    loop = LoopFacts(backwards=(backward(value=reached), backward()), updates=(update(nonfinite=nonfinite),))
    coarse = Coarse(kind, "model.py:5", "float16", value)
    return loop, PrecisionFacts(coarse=(coarse,), scaling=scaling(skipped=skipped))


@rule(
    "scaler-skips-updates",
    "the scaler skipped 20 of 20 updates",
    "the gradient scaler",
    spared=[but(scaler=None)],
    limits={"skipped": Limit(15, 16, (0, 20))},
)
def _(skipped=20, scaler=scaling):
    return PrecisionFacts(scaling=scaler and scaler(skipped=skipped))


@rule(
    "scaler-skips-updates",
    "the scaler skipped 4 of 4 updates",
    "the gradient scaler",
    limits={"attempts": Limit(3, 4)},
)
def _(attempts=4):
    return PrecisionFacts(scaling=scaling(attempts=attempts, skipped=attempts))


@rule(
    "scaler-skips-updates",
    "the scaler skipped 9 of 20 updates",
    "the gradient scaler",
    also=[also("the scaler skipped 9 of 20 updates", first=25)],
    limits={"late": Limit(4, 5, (0, 9))},
)
def _(late=9, first=0):
    return PrecisionFacts(scaling=scaling(skipped=9, skipped_late=late, skipped_first=first))


@rule(
    "scaler-skips-updates",
    "the scaler skipped 30 of 90 updates, 30 of them before the first one",
    "the gradient scaler",
    limits={"first": Limit(24, 25)},
)
def _(first=30):
    return PrecisionFacts(scaling=scaling(attempts=90, skipped=30, skipped_first=first))


@rule(
    "scaler-with-bfloat16",
    "a scaler scaled 20 updates of a model that computes in bfloat16",
    "the gradient scaler",
    spared=[but(with_bfloat16=False), but(scaler=None)],
)
def _(with_bfloat16=True, scaler=scaling):
    return PrecisionFacts(scaling=scaler and scaler(with_bfloat16=with_bfloat16))


@rule(
    "update-inside-autocast",
    "1 of 2 updates ran in the same autocast region as the update before",
    "train.py:9",
    severity="error",
    spared=[but(inside=False)],
)
def _(inside=True):
    return LoopFacts(updates=(update(where="train.py:1"), update(number=2, in_autocast=inside)))


@rule(
    "updates-rounded-away",
    "90% of the bfloat16 elements with a gradient did not change in an update",
    "train.py:9",
    spared=[but(half=""), but(rate=0.0), but(last=0.1)],
    also=[also("90% of the bfloat16 elements", at="the recipe's precision", where="")],
    limits={"last": Limit(0.5, 0.501, (0.0, 1.0)), "count": Limit(0, 1)},
)
def _(last=0.9, count=1, half="bfloat16", rate=1e-5, where="train.py:9"):
    usual = {"half": half, "rate": rate, "where": where}
    return LoopFacts(updates=(*updates(count, lost_share=0.9, **usual), update(lost_share=last, **usual)))


@rule(
    "updates-rounded-away",
    "1 bfloat16 tensors with gradients did not change, for example norm.weight",
    "train.py:9",
    spared=[but(second=()), but(second=("head.weight",))],
)
def _(second=("norm.weight",)):
    first = update(half="bfloat16", still=frozenset({"norm.weight", "norm.bias"}))
    return LoopFacts(updates=(first, update(half="bfloat16", still=frozenset(second))))
