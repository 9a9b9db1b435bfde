"""The rules of evaluation on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.evaluation import EvaluationFacts, NeverUsed, Pass
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.facts.samples import SampleFacts
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import aim, evaluation, forward, loader, loss, metric, probe, series, threshold, updates

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
    "dropout-in-evaluation",
    "block.attention drops elements although the model is in evaluation mode",
    "Net",
    severity="error",
    spared=[but(random=""), but(repeats=True)],
)
def _(random="block.attention", repeats=False):
    return ModelFacts(probes=(probe(random_in_evaluation=random, repeats_evaluation=repeats),))


@rule(
    "eval-mode-in-training",
    "2 of 2 forward calls that led to an update ran in evaluation mode; layers that behave differently there: drop",
    "Net",
    spared=[but(resting=()), but(trained=False), but(mode_dependent=()), but(backpropagated=False, builds_graph=True),
            but(resting=("BatchNorm2d bn",), others=1)],
    also=[
        also("call model.train() before training"),
        also("call model.train() after every evaluation", severity="error", own=1),
        also("if Net is a teacher or target, keep it so", others=1),
        also("call model.train() before training", others=1, other={"trained": False}),
        also("call model.train() before training", others=1, other={"training": False}),
        also("2 of 2 forward calls", resting=("BatchNorm2d bn",), others=1, other={"training": False}),
        also("2 of 2 forward calls", resting=("BatchNorm2d bn",), others=1, other={"trained": False}),
        also("2 of 2 forward calls", backpropagated=False),
        also("2 of 2 forward calls", builds_graph=True),
        also("after every evaluation, before training resumes", severity="error", own=1, others=1),
        also("2 of 3 forward calls", severity="error", own=1),
        also("2 of 3 forward calls", severity="error", resting=("BatchNorm2d bn",), own=1, others=1),
        also("2 of 2 forward calls", resting=("BatchNorm2d bn",)),
    ],
)  # fmt: skip
def _(resting=("drop",), own=0, others=0, other=None, **fields):
    usual = {"trained": True, "backpropagated": True, "mode_dependent": ("drop",)}
    wrong = forward(**{"training": False, "resting": resting, **usual, **fields})
    learning, head = forward(**usual), forward(**{"model": "Head", "trained": True, **(other or {})})
    return LoopFacts(forwards=(wrong, wrong, *[learning] * own, *[head] * others))


@rule(
    "graph-built-in-evaluation",
    "2 forward calls in evaluation built a graph that no backward used",
    "Net",
    severity="info",
    spared=[but(builds_graph=False), but(backpropagated=True), but(input_graded=True), but(derived=True),
            but(training=True), but(model="Teacher"), but(net={"trained": False}), but(net={"training": False})],
    also=[also("2 of these graphs still existed two batches", severity="warning", graph_kept=True)],
    limits={"count": Limit(1, 2, (0, 3))},
)  # fmt: skip
def _(count=2, net=None, **fields):
    unused = forward(**{"training": False, "builds_graph": True, **fields})
    trained = forward(**{"trained": True, **(net or {})})
    return LoopFacts(forwards=(trained, *[unused] * count), updates=updates(4))


@rule(
    "graph-built-in-evaluation",
    "4 forward calls in evaluation built a graph that no backward used",
    "Net",
    severity="info",
    spared=[but(mode_dependent=("drop",)), but(update=0)],
    limits={"count": Limit(3, 4), "made": Limit(2, 3)},
)
def _(count=4, made=3, update=1, mode_dependent=()):
    unused = forward(builds_graph=True, update=update, mode_dependent=mode_dependent)
    used = forward(update=update, mode_dependent=mode_dependent)
    return LoopFacts(forwards=(used, *[unused] * count), updates=updates(made))


@rule(
    "loss-of-the-last-batch",
    "of 5 evaluated batches, loss holds the number of the last one only",
    "eval.py:6",
    severity="info",
    spared=[but(kind="mean")],
)
def _(kind="last"):
    return EvaluationFacts(metrics=(metric(kind=kind),))


@rule(
    "unweighted-batch-means",
    "loss adds up the means of 5 batches of different sizes with equal weight",
    "eval.py:6",
    severity="info",
    spared=[but(kind="last")],
    also=[also("a sum adds up the means of 5 batches", name="")],
)
def _(kind="mean", **fields):
    return EvaluationFacts(metrics=(metric(kind=kind, **fields),))


@rule(
    "shuffled-evaluation",
    "the evaluation loader of Images shuffles and drops its last batch",
    "the loader of Images",
    severity="info",
    spared=[but(role="training"), but(shuffles=False, drops=False)],
    also=[also("Images shuffles", drops=False), also("Images drops its last batch", shuffles=False)],
)
def _(role="evaluation", shuffles=True, drops=True):
    return SampleFacts(loaders=(loader(role=role, out_of_order=shuffles, drops_last=drops),))


@rule(
    "shuffled-evaluation",
    "the evaluation drops its last batch",
    "Net",
    severity="info",
    also=[also("the evaluation shuffles", reordered=True, left_out=0)],
    limits={"left_out": Limit(0, 1)},
)
def _(reordered=False, left_out=1):
    return EvaluationFacts(passes=(Pass("Net", reordered, left_out),))


@rule(
    "threshold-on-logits",
    "numbers between -3 and 4 are compared with 0.5",
    "eval.py:5",
    severity="info",
    spared=[but(function="cross_entropy"), but(thresholds=0)],
    also=[
        also("compared with 0.5", function="cross_entropy", kind="binary"),
        also("argmax over samples", function="cross_entropy", seen="argmax over samples"),
        also("compared with 0.5", at="the loop", where=""),
    ],
)
def _(function="binary_cross_entropy_with_logits", kind="classes", thresholds=1, **fields):
    asked = LossFacts(losses=(loss(function=function),), aims=(aim(kind=kind),))
    return asked, EvaluationFacts(thresholds=(threshold(**fields),) * thresholds)


@rule(
    "training-mode-in-evaluation",
    "after update 1, 2 forward calls without gradients ran in training mode: Dropout",
    "Net",
    spared=[but(active=()), but(used=False), but(repeated=True), but(in_step=True), but(trained=False), but(update=0),
            but(trained=False, copied=True)],
    limits={"count": Limit(1, 2)},
)  # fmt: skip
def _(count=2, **fields):
    return LoopFacts(updates=updates(4)), EvaluationFacts(evaluations=(evaluation(**fields),) * count)


@rule(
    "training-mode-in-evaluation",
    "after update 1, 1 forward call without gradients ran in training mode: Dropout",
    "Net",
    spared=[but(passes=2), but(trained=False), but(again=True)],
    also=[also("1 forward call without gradients", trained=False, copied=True)],
    limits={"samples": Limit(7, 8), "made": Limit(3, 4)},
)
def _(samples=8, made=5, passes=1, again=False, **fields):
    seen = [evaluation(samples=samples, update=1 + n, **fields) for n in range(passes)]
    seen += [evaluation(model="Other", active=(), repeated=True)] * again
    return LoopFacts(updates=updates(made)), EvaluationFacts(evaluations=tuple(seen))


@rule(
    "training-mode-in-evaluation",
    "after update 1, 3 forward calls without gradients ran in training mode: Dropout",
    "Net",
    limits={"count": Limit(2, 3)},
)
def _(count=3, passes=3):
    seen = [evaluation(update=1 + n) for n in range(passes) for _ in range(count)]
    return LoopFacts(updates=updates(8)), EvaluationFacts(evaluations=tuple(seen))


@rule(
    "training-mode-in-evaluation",
    "after update 1, 2 forward calls without gradients ran in training mode: Dropout",
    "Net",
    limits={"passes": Limit(3, 2, (1, 8))},
)
def _(passes=2):
    views = [evaluation(update=1 + n) for n in range(passes) for _ in range(2)]
    return LoopFacts(updates=updates(8)), EvaluationFacts(evaluations=tuple(views))


@rule(
    "made-and-never-used",
    "`val`, a loader, is made, and nothing uses it; nothing is measured on its samples; iterate it",
    "train.py:3",
    also=[
        also("`val`, the output of a layer, is made", kind="output of a layer"),
        also("`val`, an order, gets another value before anything reads it", kind="order", overwritten=True),
        also(
            "`val`, a mask that `loss_of` is given, is never read there; nothing", kind="mask that `loss_of` is given"
        ),
        also("`val`, a function that evaluates, is never called", kind="function that evaluates"),
    ],
    spared=[but(count=0)],
)
def _(count=1, kind="loader", overwritten=False):
    return EvaluationFacts(never_used=(NeverUsed(kind, "val", "train.py:3", overwritten),) * count)


FALLING = (2.0, 1.5, 1.0, 0.5, 0.2)


@rule(
    "perfect-before-training",
    "`val acc` is 1.000 before the first update",
    "train.py:9",
    spared=[but(untrained=0), but(kind="recall"), but(kind="coverage"), but(kind="loss"), but(decimals=(1, 1))],
    also=[also("`val acc` is 1.000", kind="f1"), also("is 100.000", first=100.0),
          also("is 0.000", kind="error rate", first=0.0)],
    limits={"first": Limit(0.999, 1.0, (0, 1)), "last": Limit(4, 5)},
)  # fmt: skip
def _(kind="accuracy", first=1.0, last=10, untrained=1, **fields):
    return EvaluationFacts(
        series=(series("val acc", kind, first, 0.5, untrained=untrained, updates=(0, last), **fields),)
    )


@rule(
    "perfect-before-training",
    "`val acc` is 1.000 before the first update",
    "train.py:9",
    spared=[but(second=0.5)],
)
def _(second=1.0):
    return EvaluationFacts(series=(series("val acc", "accuracy", 1.0, second, 0.9, untrained=2, updates=(0, 0, 9)),))


@rule(
    "all-or-nothing-metric",
    "`coverage` is exactly 0.000 every time, 3 times",
    "train.py:9",
    spared=[but(last=0.001), but(value=0.5, last=0.5), but(kind="recall"), but(decimals=(1, 1, 1)),
            but(updates=(0, 10, 10))],
    also=[also("is exactly 1.000", value=1.0, last=1.0), also("is exactly 100.000", value=100.0, last=100.0)],
)  # fmt: skip
def _(kind="coverage", value=0.0, last=0.0, **fields):
    return EvaluationFacts(series=(series("coverage", kind, value, value, last, **fields),))


@rule(
    "all-or-nothing-metric",
    "`acc` is exactly 0.000 every time",
    "train.py:9",
    spared=[but(value=1.0), but(classes=0), but(weights=[]), but(training=50), but(kind="f1")],
    limits={"classes": Limit(33, 32, (1, 1000)), "last": Limit(1.5, 1.3, (0, 2))},
)
def _(kind="accuracy", value=0.0, classes=10, last=0.5, training=0, **fields):
    losses = series("loss", "loss", 2.0, 1.5, last, training=training)
    asked = loss(**{"classes": classes, "weights": [1.0], **fields})
    return LossFacts(losses=(asked,)), EvaluationFacts(series=(losses, series("acc", kind, *[value] * 3)))


@rule(
    "impossible-number",
    "`ctc` is -0.500 after 10 updates; a CTC loss is never below 0",
    "train.py:9",
    spared=[but(kind="nll"), but(kind="loss"), but(kind="r2", other=0.9), but(lowest=-0.0),
            but(kind="correlation", other=0.9)],
    also=[
        also("a cross entropy is never below 0", kind="cross entropy"),
        also("an MSE is never below 0", kind="mse"),
        also("an accuracy is never below 0", kind="accuracy"),
        also("a perplexity is never below 1", kind="perplexity", lowest=0.9),
        also("a correlation is never below -1", kind="correlation", lowest=-1.2, other=0.9),
        also("a CTC loss is never below 0", kind="loss", function="ctc_loss"),
    ],
    limits={"lowest": Limit(-0.001, -0.002, (-9, 9))},
)  # fmt: skip
def _(kind="ctc", lowest=-0.5, function="cross_entropy", other=1.9):
    asked = loss(function=function, weights=[1.0])
    return LossFacts(losses=(asked,)), EvaluationFacts(series=(series("ctc", kind, other, lowest, other),))


@rule(
    "impossible-number",
    "`score` is 1.200 after 10 updates; an R2 is never above 1",
    "train.py:9",
    spared=[but(kind="accuracy"), but(kind="f1"), but(other=50.0)],
    also=[also("an IoU is never above 1", kind="iou")],
    limits={"highest": Limit(1.001, 1.002, (0, 2))},
)
def _(kind="r2", highest=1.2, other=0.9):
    return EvaluationFacts(series=(series("score", kind, 0.8, highest, other),))


@rule(
    "impossible-number",
    "`acc` is 128.000 after 10 updates; an accuracy is never above 100",
    "train.py:9",
    spared=[but(decimals=(0, 0, 0)), but(kind="loss")],
    limits={"highest": Limit(100.0, 100.2, (51, 900))},
)
def _(kind="accuracy", highest=128.0, **fields):
    return EvaluationFacts(series=(series("acc", kind, 50.0, highest, 40.0, **fields),))


@rule(
    "impossible-number",
    "ctc_loss returned -2; a CTC loss is never below 0",
    "train.py:7",
    spared=[but(function="cross_entropy"), but(value=None), but(value=0.0)],
)
def _(function="ctc_loss", value=-2.0):
    return LossFacts(losses=(loss(function=function, value=value),))


@rule(
    "metric-worse-as-loss-falls",
    "`val acc` goes from 0.600 to 0.100 while `val loss` goes from 2.000 to 0.200",
    "train.py:9",
    spared=[but(phase="train"), but(phase=""), but(kind="recall"), but(kind="loss"), but(training=5),
            but(losses=FALLING[::-1]), but(values=(0.5, 0.4, 0.3, 0.2, 0.45)),
            but(values=(0.6, 0.58, 0.56, 0.54, 0.52)),
            but(values=(0.6, 0.5, 0.3, 0.2), losses=FALLING[:4]), but(losses=(2.0, 1.9, 1.9, 1.8, 1.7))],
    also=[also("from 60.000 to 10.000", values=(60.0, 50.0, 30.0, 20.0, 10.0))],
)  # fmt: skip
def _(kind="accuracy", phase="held out", values=(0.6, 0.5, 0.3, 0.2, 0.1), losses=FALLING, training=0):
    loss = series("val loss", "loss", *losses, phase="held out")
    return EvaluationFacts(series=(loss, series("val acc", kind, *values, phase=phase, training=training)))


@rule(
    "metric-worse-as-loss-falls",
    "`acc` goes from 0.600 to 0.200",
    "train.py:9",
    spared=[but(where="train.py:12")],
    limits={"last": Limit(0.31, 0.3, (0, 0.39))},
)
def _(last=0.2, **fields):
    loss = series("loss", "loss", *FALLING)
    return EvaluationFacts(series=(loss, series("acc", "accuracy", 0.6, 0.5, 0.45, 0.4, last, **fields)))


@rule(
    "metric-worse-as-loss-falls",
    "`val mae` goes from 1.000 to 2.000",
    "train.py:9",
    spared=[but(phase="")],
    also=[also("`val mae` goes", kind="error rate")],
    limits={"last": Limit(1.49, 1.5, (1.4, 9))},
)
def _(kind="mae", last=2.0, phase="held out"):
    loss = series("val loss", "loss", *FALLING, phase=phase)
    return EvaluationFacts(series=(loss, series("val mae", kind, 1.0, 1.1, 1.2, 1.3, last, phase=phase)))


@rule(
    "metric-worse-as-loss-falls",
    "`val ppl` goes from 7.389 to 14.778 while `val loss` goes from 2.000 to 0.200",
    "train.py:9",
    spared=[but(scale=3.0)],  # the perplexity of something else, such as the codes of a VQ-VAE
)
def _(scale=1.0):
    values = (scale * math.exp(FALLING[0]) * each for each in (1.0, 1.1, 1.2, 1.3, 2.0))
    loss = series("val loss", "loss", *FALLING, phase="held out")
    return EvaluationFacts(series=(loss, series("val ppl", "perplexity", *values, phase="held out")))


@rule(
    "same-number-for-both-splits",
    "`train loss` and `val loss` are equal to the digit all 3 times, from 2.000 to 1.000",
    "train.py:9",
    spared=[but(values=(2.0, 1.5, 1.001)), but(decimals=(2, 2, 2)), but(kind="mse"), but(training=4),
            but(printed=False), but(phase="", where="train.py:3"), but(phase="held out"), but(updates=(0, 10, 21))],
    also=[also("`train loss` and `val loss`", phase="")],
)  # fmt: skip
def _(values=(2.0, 1.5, 1.0), kind="loss", phase="train", decimals=(3, 3, 3), **fields):
    held = series("val loss", "loss", 2.0, 1.5, 1.0, phase="held out", decimals=decimals)
    other = series("train loss", kind, *values, phase=phase, decimals=decimals, **fields)
    return EvaluationFacts(series=(other, held))


@rule(
    "same-number-for-both-splits",
    "`train acc` and `val acc` are equal to the digit all 5 times",
    "train.py:9",
    spared=[but(last=0.8), but(values=(1.0,) * 4, last=1.0), but(values=(0.1, 0.4, 0.5))],
)
def _(values=(0.1, 0.4, 0.5, 0.8), last=0.9):
    held = series("val acc", "accuracy", *values, last, phase="held out")
    return EvaluationFacts(series=(held, series("train acc", "accuracy", *values, last, phase="train")))


@rule(
    "held-out-number-never-changes",
    "`val loss` is 0.693 all 5 times",
    "train.py:9",
    spared=[but(kind="accuracy"), but(phase="train"), but(phase=""), but(last=0.694), but(value=0.0, last=0.0),
            but(value=0.7, last=0.7), but(losses=(2.0,) * 5), but(losses=FALLING[::-1]), but(training=7),
            but(updates=(0, 0, 0, 0, 40))],
    also=[also("`val loss` is 1.250", value=1.25, last=1.25, kind="mse")],
)  # fmt: skip
def _(value=0.693, last=0.693, kind="loss", phase="held out", losses=FALLING, training=0, **fields):
    loss = series("loss", "loss", *losses, training=training)
    held = series("val loss", kind, *[value] * 4, last, phase=phase, **fields)
    return EvaluationFacts(series=(loss, held))
