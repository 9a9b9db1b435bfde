"""The rules of models on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import Crossing, IgnoredArgument, ModelFacts
from surefoot.checks.facts.samples import SampleFacts
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import (
    adapter,
    fixed_network,
    hidden_module,
    layout,
    leaf,
    merge,
    probe,
    samples,
    shadow,
    updates,
)  # fmt: skip

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


# ------------------------------------------------------------------------------------------- adapters


@rule(
    "adapters-never-move",
    "none of 2 adapters changed in 4 updates: layers.1, ...",
    "layers.1",
    severity="error",
    spared=[but(first=True), but(second=True), but(rate=0.0)],
    limits={"made": Limit(1, 2), "seen": Limit(1, 2)},
)
def _(first=False, second=False, made=4, seen=4, rate=0.1):
    rows = (adapter(name="layers.1", moved=first, updates=seen), adapter(moved=second, updates=seen))
    return LoopFacts(updates=updates(made, rate=rate)), ModelFacts(adapters=(adapter(model="Other"), *rows))


@rule(
    "base-trained-beside-adapters",
    "1 weight with adapters beside them were trained and moved: layers.1",
    "layers.1",
    severity="error",
    spared=[but(base_trained=False)],
)
def _(base_trained=True):
    return ModelFacts(adapters=(adapter(), adapter(name="layers.1", base_trained=base_trained)))


@rule(
    "merged-with-other-scaling",
    "layers.0.weight was trained with its adapter times 2, and merged with it times 4",
    "merge.py:3",
    also=[
        also("merged with it times 1", severity="error", merged_with=1.0),
        also("merged with it times 4", at="layers.0.weight", where=""),
    ],
    limits={"merged_with": Limit(2.099, 2.101, (2.0, 9.0))},
)
def _(merged_with=4.0, **fields):
    return ModelFacts(merges=(merge(), merge(merged_with=merged_with, **fields)))


# ------------------------------------------------------------------------------------------- copies of a network


def shadowed(ended=True, others=(), **fields):
    """A copy of a trained network, in a script that has run to its end."""
    return LoopFacts(ended=ended), ModelFacts(shadows=(shadow(**fields), *others))


@rule(
    "aliased-copy",
    "ema and net share their memory: every update changes both",
    "ema",
    spared=[but(aliased=False), but(follows=False)],
)
def _(aliased=True, follows=True):
    return shadowed(aliased=aliased, follows=follows)


@rule(
    "copy-never-updated",
    "ema was used after net was trained, but still has its first weights after 10 updates",
    "ema",
    spared=[but(never_changed=False), but(follows=False), but(copied=False, same_inputs=True), but(pulls=1),
            but(aliased=True), but(ended=False)],
    also=[also("still has its first weights", copied=False), also("still has its first weights", same_inputs=True),
           also("; so does target", second=True)],
    limits={"apart": Limit(9, 10), "calls": Limit(0, 1)},
)  # fmt: skip
def _(second=False, **fields):
    stale = {"never_changed": True, "follows": True, "copied": True, "apart": 10, "calls": 1, **fields}
    ended = stale.pop("ended", True)
    return shadowed(ended, others=(shadow(**{**stale, "name": "target"}),) * second, **stale)


@rule(
    "copy-updated-backwards",
    "ema takes 0.9 of net at each of 4 updates and keeps 0.1 of itself",
    "ema",
    spared=[but(share=0.999999), but(elsewhere=2), but(aliased=True)],
    also=[also("ema takes 0.9 of net", elsewhere=1)],
    limits={"count": Limit(2, 3), "share": Limit(0.8949, 0.8951, (0.0, 0.905)),
            "last": Limit(0.911, 0.909, (0.9, 0.99))},
)  # fmt: skip
def _(count=3, share=0.9, last=None, **fields):
    return shadowed(shares=(share,) * count + (share if last is None else last,), **fields)


@rule(
    "copy-updated-backwards",
    "net was overwritten with weights of ema between updates, 2 times; ema never changed",
    "net",
    spared=[but(never_changed=False), but(follows=False), but(aliased=True)],
    limits={"pulls": Limit(1, 2)},
)
def _(pulls=2, **fields):
    return shadowed(**{"pulls": pulls, "never_changed": True, "follows": True, **fields})


@rule("copy-updated-backwards", "net was overwritten with weights of ema", "net", limits={"calls": Limit(1, 2)})
def _(calls=2):
    return shadowed(pulls=2, never_changed=True, calls=calls)


@rule(
    "copy-with-initial-statistics",
    "ema was evaluated with the initial statistics of bn1; those of net have moved",
    "ema",
    spared=[but(layer="")],
)
def _(layer="bn1"):
    return shadowed(stale_statistics=layer)


@rule(
    "unused-average",
    "ema followed net through 4 updates, but only net was evaluated or saved",
    "ema",
    severity="info",
    spared=[but(ended=False), but(raw=0), but(used=True), but(aliased=True)],
    limits={"count": Limit(3, 4), "share": Limit(0.9, 0.899, (0.0, 1.0))},
)
def _(count=4, share=0.01, ended=True, **fields):
    return shadowed(ended, **{"shares": (share,) * count, "raw": 1, "used": False, **fields})


@rule(
    "teacher-in-training-mode",
    "teacher ran before 4 updates in training mode, and its weights never changed: Dropout",
    "teacher",
    limits={"seen": Limit(3, 4)},
)
def _(seen=4):
    return ModelFacts(fixed_networks=(fixed_network(updates=seen),))


# ------------------------------------------------------------------------------------------- inputs that do nothing


@rule(
    "argument-ignored",
    "no output of Net changes when `t`, of shape (8,), is replaced; 3 other values were tried",
    "Net",
    spared=[but(arguments=0), but(ignores_input=True), but(ignores_text=True)],
)
def _(arguments=1, **fields):
    ignored = IgnoredArgument("Net", "t", (8,), 3)
    return ModelFacts(probes=(probe(**fields),), ignored_arguments=(ignored,) * arguments)


@rule(
    "input-ignored",
    "no output changes when every input is replaced",
    "Net",
    severity="error",
    spared=[but(ignores_input=False), but(time_over_samples="lstm")],
    also=[
        also("when a text in the input is replaced", severity="warning", ignores_input=False, ignores_text=True),
        also("is the same number", severity="warning", ignores_input=False, constant_input=True),
    ],
)
def _(ignores_input=True, **fields):
    return ModelFacts(probes=(probe(ignores_input=ignores_input, **fields),))


@rule(
    "samples-mixed-in-batch",
    "outputs of other samples change by 0.5 standard deviations when one sample is changed",
    "Net",
    spared=[but(relational=True), but(softmax_over_batch="attention")],
    also=[also("lstm treats the samples of a batch as time steps", at="lstm", change=0.0, time_over_samples="lstm")],
    limits={"change": Limit(3e-5, 3.01e-5, (0.0, 9.0))},
)
def _(change=0.5, **fields):
    return ModelFacts(probes=(probe(other_samples=change, **fields),))


# ------------------------------------------------------------------------------------------- batch norm


@rule(
    "batch-norm-of-few-samples",
    "bn1 normalised over 2 values per channel",
    "bn1",
    severity="info",
    spared=[but(values=None)],
    limits={"values": Limit(8, 7)},
)
def _(values=2):
    return ModelFacts(layouts=(layout(fewest_per_channel=values, few_in="bn1"),))


@rule(
    "running-frozen-batch-norm",
    "1 BatchNorm layer with frozen parameters ran in training mode: bn1",
    "bn1",
    spared=[but(names=())],
)
def _(names=("bn1",)):
    return ModelFacts(layouts=(layout(), layout(running_frozen=names)))


@rule(
    "still-statistics-of-trained-batch-norm",
    "1 BatchNorm layer with trained parameters always ran in evaluation mode, with the module around them: bn1",
    "bn1",
    spared=[but(names=())],
)
def _(names=("bn1",)):
    return ModelFacts(layouts=(layout(), layout(still_norms=names)))


# ------------------------------------------------------------------------------------------- how a model is built


@rule(
    "layers-in-plain-list",
    "1 layers with 20 parameters take part in the loss but are not registered: layers[0] (Linear)",
    "layers",
    severity="error",
    spared=[but(reached=False)],
    also=[also("1 layers with 20 parameters", severity="warning", optimized=True)],
)
def _(**fields):
    return ModelFacts(hidden_modules=(hidden_module(**fields),))


@rule(
    "linear-layers-in-a-row",
    "there is nothing between 0 and 1 and 1 more pairs",
    "Net",
    severity="info",
    spared=[but(pairs=())],
    also=[also("there is nothing between 0 and 1", pairs=("0 and 1",))],
)
def _(pairs=("0 and 1", "1 and 2")):
    return ModelFacts(layouts=(layout(in_a_row=pairs),))


@rule(
    "repeated-layer-object",
    "layers holds the same layer object several times",
    "layers",
    spared=[but(names=())],
)
def _(names=("layers",)):
    return ModelFacts(layouts=(layout(repeated_layers=names),))


@rule(
    "symmetric-initial-weights",
    "before the first update all rows are alike in 1 weight, for example hidden.weight",
    "hidden.weight",
    severity="error",
    spared=[but(alike_rows=())],
)
def _(alike_rows=("hidden.weight",)):
    return ModelFacts(layouts=(layout(alike_rows=alike_rows, matrices=3, constant_matrices=1),))


@rule(
    "symmetric-initial-weights",
    "before the first update all 2 weight matrices are constant",
    "Net",
    severity="error",
    spared=[but(leaves_zero=True), but(constant=1)],
    limits={"matrices": Limit(1, 2)},
)
def _(matrices=2, constant=None, leaves_zero=False):
    constants = matrices if constant is None else constant
    return ModelFacts(layouts=(layout(matrices=matrices, constant_matrices=constants, leaves_zero=leaves_zero),))


@rule(
    "symmetric-initial-weights",
    "2 weight matrices are constant, for example 0.weight, and stay so through updates",
    "0.weight",
    severity="error",
    spared=[but(stuck=("0.weight",))],
)
def _(stuck=("0.weight", "1.weight")):
    return ModelFacts(layouts=(layout(stuck=stuck, matrices=3, constant_matrices=2),))


@rule(
    "unregistered-buffer",
    "1 tensor of Net, neither parameter nor buffer: mask",
    "mask",
    severity="info",
    spared=[but(names=()), but(lost=("mask",))],
)
def _(names=("mask",), lost=()):
    return ModelFacts(layouts=(layout(unregistered=names, lost_state=lost),))


@rule(
    "unregistered-parameter",
    "1 tensor, one of shape (4,), collected gradients in 2 backward calls, outside of any model or optimizer",
    "net.scale",
    severity="error",
    spared=[but(registered="scale"), but(path="", hidden=True)],
    also=[
        also("1 tensor", at="the loop", severity="info", path=""),
        also("1 tensor", at="the loop", severity="warning", path="", fixed=True),
        also("1 tensor", hidden=True),
        also("2 tensors, one of shape (4,)", beside=1),
        also("2 tensors", at="the loop", severity="warning", path="", fixed=True, beside=1),
    ],
    limits={"collected": Limit(1, 2), "made": Limit(1, 2)},
)
def _(collected=2, made=2, hidden=False, beside=0, **fields):
    lost = leaf(**{"path": "net.scale", "backwards": collected, **fields})
    modules = (hidden_module(reached=False), *[hidden_module()] * hidden)
    return LoopFacts(updates=updates(made)), ModelFacts(leaves=(*[leaf()] * beside, lost), hidden_modules=modules)


@rule(
    "untied-weights",
    "head.weight and embed.weight have equal values before the first update but are two tensors",
    "head.weight",
    spared=[but(ties=())],
)
def _(ties=("head.weight and embed.weight",)):
    return ModelFacts(layouts=(layout(copied_ties=ties),))


@rule(
    "view-in-place-of-transpose",
    "(8, 3, 64) as (8, 64, 3): the sizes changed places, the numbers did not",
    "model.py:5",
    spared=[but(kind="product")],
    also=[also("the sizes changed places", kind="product", in_data=True)],
)
def _(kind="view", in_data=False):
    crossing = Crossing(kind, "model.py:5", "(8, 3, 64) as (8, 64, 3)")
    read = SampleFacts(samples=(samples(crossing=crossing if in_data else None),))
    return ModelFacts(crossings=(crossing,)), read
