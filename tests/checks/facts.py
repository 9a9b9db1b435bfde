"""Makers of facts, by subject: records of what observers see in a loop in which nothing is wrong."""

from functools import partial
from typing import Any

from surefoot.checks.facts.evaluation import Evaluation, Metric, Threshold
from surefoot.checks.facts.loop import Backward, Forward, Optimizing, Update
from surefoot.checks.facts.losses import Aim, Likelihood, Loss
from surefoot.checks.facts.models import (
    Adapter,
    FixedNetwork,
    HiddenModule,
    Layout,
    Leaf,
    Merge,
    Parameter,
    Probe,
    Shadow,
)  # fmt: skip
from surefoot.checks.facts.precision import Scaling
from surefoot.checks.facts.ranks import Ranks
from surefoot.checks.facts.samples import Inputs, Loader, Samples, Shown
from surefoot.checks.facts.saved_state import File, Resumption
from surefoot.checks.facts.series import Series
from surefoot.checks.facts.text import Sequence, TrainedText
from surefoot.checks.facts.updates import Clip, Schedule

# ------------------------------------------------------------------------------------------- the loop
forward = partial(Forward, model="Net", training=True, mode_dependent=())
backward = partial(
    Backward, where="train.py:8", differentiable=True, reaches_optimized=True, followed_by_update=True,
    double_softmax=(),
)  # fmt: skip
update = partial(Update, number=1, optimizer=0, where="train.py:9", parameters=2, carried=(), with_gradient=2)
optimizing = partial(Optimizing, kind="SGD", updates=4, parameters=2, frozen=0, foreign=(), reached=2)


def updates(count: int, first: int = 1, **fields: Any) -> tuple[Update, ...]:
    """Updates in a row."""
    return tuple(update(number=number, **fields) for number in range(first, first + count))


def backwards(count: int, **fields: Any) -> tuple[Backward, ...]:
    """A backward before each of so many updates."""
    return tuple(backward(update=number, **fields) for number in range(count))


# ------------------------------------------------------------------------------------------- losses
loss = partial(
    Loss, function="cross_entropy", where="train.py:7", reduction="mean", shape=(8, 10), target_shape=(8,), update=0
)
aim = partial(Aim, model="Net", update=0, backward=0, kind="classes", sign=1, values="numbers", above="")
likelihood = partial(Likelihood, where="train.py:7", backward=0, sign=1, of_data=True)

# ------------------------------------------------------------------------------------------- models
parameter = partial(Parameter, name="body.weight", model="Net", trainable=True, reached=True, optimized=True)
hidden_module = partial(HiddenModule, path="layers[0]", kind="Linear", parameters=20, reached=True, optimized=False)
leaf = partial(Leaf, shape=(4,), backwards=2, path="")
layout = partial(Layout, model="Net")
probe = partial(Probe, model="Net")
shadow = partial(Shadow, name="ema", source="net")
fixed_network = partial(FixedNetwork, name="teacher", active=("Dropout",), updates=4)
adapter = partial(Adapter, name="layers.0", model="Net", base_trained=False, moved=True, updates=4)
merge = partial(Merge, name="layers.0.weight", where="merge.py:3", trained_with=2.0, merged_with=2.0)

# ------------------------------------------------------------------------------------------- samples
loader = partial(Loader, kind="Images", role="training", passes=2, batches=10, drops_last=False, workers=0)
samples = partial(Samples, where="Images")
inputs = partial(
    Inputs, model="Net", layer="conv", shape=(8, 3, 32, 32), lowest=-2.0, highest=2.0, whole=False, image=True,
    size=1.0, deviation=1.0,
)  # fmt: skip
shown = partial(Shown, model="Net", update=1, samples=100, shared=0, distinct=100, names=False)

# ------------------------------------------------------------------------------------------- evaluation
evaluation = partial(Evaluation, model="Net", active=("Dropout",), update=1, repeated=False, trained=True, samples=4)
threshold = partial(Threshold, where="eval.py:5", lowest=-3.0, highest=4.0)
metric = partial(Metric, name="loss", where="eval.py:6", batches=5)


def series(name: str, kind: str, *values: float, **fields: Any) -> Series:
    """Numbers with three decimals, one after every tenth update."""
    updates = tuple(range(0, 10 * len(values), 10))
    usual = {"where": "train.py:9", "updates": updates, "decimals": (3,) * len(values)}
    return Series(name, kind, **{**usual, **fields}, values=values)


# ------------------------------------------------------------------------------------------- ranks
ranks = partial(Ranks, count=2)

# ------------------------------------------------------------------------------------------- precision
scaling = partial(Scaling, attempts=20, skipped=0, with_bfloat16=False)

# ------------------------------------------------------------------------------------------- saved state
file = partial(File, where="resume.py:4")
resumption = partial(Resumption, where="resume.py:4", counter="epoch", loaded=3)

# ------------------------------------------------------------------------------------------- text
sequence = partial(Sequence, model="Net", where="train.py:7", shift=1, match=1.0)
trained_text = partial(TrainedText, model="Net", where="train.py:7", rows=8)

# ------------------------------------------------------------------------------------------- updates
clip = partial(
    Clip, where="train.py:10", parameters=2, with_gradient=2, used_already=False, scaled=False, optimized=True,
    unlimited=False,
)  # fmt: skip
schedule = partial(
    Schedule, kind="CosineAnnealingLR", where="train.py:6", calls=4, updates=4, before_first_update=False,
    between_updates=1, horizon=None, turns=False, epoch=None, passes=1, share_after_epoch=None, others_updated=0,
)  # fmt: skip
