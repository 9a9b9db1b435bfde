"""The rules of losses on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import Known, LossFacts
from surefoot.checks.facts.models import Crossing, ModelFacts
from surefoot.checks.facts.samples import SampleFacts
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import (
    aim,
    backward,
    backwards,
    layout,
    likelihood,
    loss,
    optimizing,
    parameter,
    probe,
    samples,
    update,
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


# ------------------------------------------------------------------------------------------- terms with a law

LAWS = {
    "advantage-with-gradient": ("advantage", "the advantage at this line weighs log-probabilities, and it is off"),
    "bootstrapped-target-with-gradient": ("bootstrap", "towards a reward plus a discounted value, and it is off"),
    "returns-of-other-steps": ("returns", "log-probabilities are weighed by returns, but it is off"),
    "unmasked-final-states": ("final states", "it is off"),
    "unopposed-generator": ("opponents", "it is off"),
    "wrong-gaussian-divergence": ("divergence", "the divergence of a Gaussian from N(0, 1) is none: it is off"),
    "wrong-gaussian-likelihood": ("spread", "a squared error is divided by a learned variance: it is off"),
    "wrong-noise-factors": ("noise", "samples are mixed with noise in wrong shares: it is off"),
    "wrong-policy-ratio": ("clipping", "the clipped ratio of probabilities is off: it is off"),
    "wrong-similarity-logits": ("similarity", "the similarities in this cross-entropy are unfit: it is off"),
}
"""The checks of terms with a law: what the facts call the term, and what is reported of it."""


def broken_law(kind):
    def _(broken=3, held=0, called=kind, where="train.py:7"):
        return LossFacts(
            known=(Known("a term", "other.py:1", broken=9), Known(called, where, held, broken, "it is off"))
        )

    return _


for check, (kind, words) in LAWS.items():
    rule(
        check,
        words,
        "train.py:7",
        spared=[but(called="another"), but(held=1)],
        also=[also("it is off", at="the recipe's loss", where="")],
        limits={"broken": Limit(2, 3)},
    )(broken_law(kind))


@rule("wrong-policy-ratio", "is off: it is off", "train.py:7", spared=[but(held=1)], limits={"broken": Limit(0, 1)})
def _(broken=1, held=0):
    return LossFacts(known=(Known("ratio", "train.py:7", held, broken, "it is off"),))


# ------------------------------------------------------------------------------------------- targets


@rule(
    "all-targets-ignored",
    "in 1 of 2 losses all 8 targets are ignored",
    "train.py:7",
    severity="error",
    spared=[but(valid=1), but(targets=0), but(reduction="sum"), but(weights=[]), but(weights=[0.0])],
    also=[
        also("in 1 of 2 losses", reduction="sum", site=2),
        also("in 1 of 2 losses", at="the recipe's data", where=""),
    ],
)
def _(**fields):
    empty = loss(**{"targets": 8, "valid": 0, "weights": [1.0], **fields})
    return LossFacts(losses=(loss(targets=8, valid=8), empty))


@rule(
    "all-targets-ignored",
    "a mask removes the whole loss every time, and gradients are zero or NaN",
    "train.py:7",
    severity="error",
    spared=[but(lines=()), but(all_zero=False)],
    also=[also("a mask removes the whole loss", all_zero=None, nonfinite=("body.weight",))],
)
def _(lines=("train.py:7",), all_zero=True, nonfinite=()):
    return LoopFacts(updates=(update(all_zero=all_zero, nonfinite=nonfinite),)), LossFacts(emptied_lines=lines)


@rule(
    "broadcast-loss",
    "mse_loss broadcast (8, 1) and (8,) to (8, 8)",
    "train.py:7",
    severity="error",
    spared=[but(broadcast=())],
    also=[also("mse_loss broadcast", at="the recipe's loss", where="")],
)
def _(broadcast=(8, 8), where="train.py:7"):
    one = loss(function="mse_loss", shape=(8, 1), target_shape=(8,), broadcast=broadcast, where=where)
    return LossFacts(losses=(loss(), one))


@rule(
    "constant-targets",
    "all 24 targets of 3 losses are 0.0",
    "train.py:7",
    spared=[
        but(constant=None), but(last=None), but(last=1.0), but(ranks=True), but(function="mse_loss"),
        but(opponents=1), but(sorted_labels=3), but(function="mse_loss", of_outputs=True, derivatives=True),
        but(function="mse_loss", of_outputs=True, beside=True), but(valid=3, commonest=0.5),
        but(valid=1, commonest=1.0), but(count=2, valid=100), but(count=9, valid=3),
        but(function="kl_div", of_outputs=True),
    ],
    also=[
        also("all 24 targets of 3 losses are 0.0", function="mse_loss", of_outputs=True),
        also("all 12 targets of 3 losses", valid=4, commonest=0.5),
        also("all 6 targets of 3 losses", valid=2, commonest=1.0),
        also("all 4 targets of 4 losses", count=4, valid=1, commonest=1.0),
        also("all 24 targets of 3 losses", function="mse_loss", of_outputs=True, beside=True, at_backward=9),
        also("all 24 targets of 3 losses", beside=True),
        also("all 24 targets of 3 losses", derivatives=True),
        also("all 24 targets of 3 losses", idle=1),
        also("all 24 targets", at="the recipe's data", where=""),
    ],
    limits={"count": Limit(2, 3, (1, 9)), "valid": Limit(7, 8)},
)  # fmt: skip
def _(count=3, valid=8, constant=0.0, last=0.0, opponents=0, idle=0, sorted_labels=0, derivatives=False, beside=False,
      at_backward=0, commonest=None, **fields):  # fmt: skip
    rows = [loss(valid=valid, constant=constant, backward=n, **fields) for n in range(count)]
    rows[-1].constant = last if constant is not None else None
    rows += [loss(function="kl_div", backward=at_backward)] * beside
    given_facts = GradientFacts(derivatives_in_losses=derivatives)
    read = SampleFacts(samples=(samples(sorted_labels=sorted_labels, commonest_label=commonest),))
    optimizers = (optimizing(),) * (1 + opponents) + (optimizing(updates=0),) * idle
    return LoopFacts(optimizers=optimizers), LossFacts(losses=tuple(rows)), given_facts, read


@rule(
    "constant-targets",
    "all 24 targets of 3 losses are 0.0",
    "Net",
    spared=[but(kind="averaged"), but(ranks=True)],
    limits={"count": Limit(2, 3), "targets": Limit(7, 8)},
)
def _(count=3, targets=8, kind="classes", ranks=False):
    aims = (aim(kind=kind, targets=targets, constant=0.0, backward=n, ranks=ranks) for n in range(count))
    return LoopFacts(optimizers=(optimizing(),)), LossFacts(aims=tuple(aims))


@rule(
    "constant-targets",
    "all 24 targets of 3 losses are 1.0",
    "train.py:7",
    spared=[but(parts=(0.0,)), but(ranks=True), but(function="mse_loss"), but(last=0.0), but(count=2, valid=100),
            but(last=0.0, parts=(0.0, 1.0))],
    also=[also("all 24 targets of 3 losses", optimizers=1)],
    limits={"count": Limit(2, 3, (1, 9)), "valid": Limit(7, 8)},
)  # fmt: skip
def _(count=3, valid=8, parts=(1.0,), last=1.0, optimizers=2, **fields):
    rows = [loss(valid=valid, constant=1.0, backward=n, **fields) for n in range(count)]
    rows[-1].constant = last
    two = (optimizing(),) * optimizers
    read = SampleFacts(samples=(samples(constant_parts=parts),))
    return LoopFacts(optimizers=two), LossFacts(losses=(*rows, loss(where="train.py:20", valid=8))), read


@rule(
    "regression-on-class-numbers",
    "the targets of 2 losses are whole numbers from 0 to 9, one for each sample",
    "train.py:7",
    severity="info",
    spared=[but(last=0), but(function="cross_entropy")],
    also=[also("the targets of 2 losses", function="sub"), also("the targets", at="the recipe's loss", where="")],
    limits={"classes": Limit(2, 3)},
)
def _(classes=10, last=None, function="mse_loss", where="train.py:7"):
    numbers = (classes, classes if last is None else last)
    return LossFacts(losses=tuple(loss(function=function, class_numbers=n, where=where) for n in numbers))


@rule(
    "regression-on-class-numbers",
    "the targets of 1 loss are whole numbers from 0 to 9",
    "Net",
    severity="info",
    spared=[but(kind="classes")],
)
def _(kind="distance"):
    return LossFacts(aims=(aim(kind=kind, class_numbers=10),))


# ------------------------------------------------------------------------------------------- inputs of a loss


@rule(
    "activation-before-cross-entropy",
    "1 call of cross_entropy received the output of a relu",
    "train.py:7",
    spared=[but(logits_from="Addmm"), but(probabilities=True), but(function="mse_loss"),
            but(function="binary_cross_entropy_with_logits", logits_from="Sigmoid", above="Sigmoid")],
    also=[
        also("received the output of a tanh", function="nll_loss", logits_from="Tanh"),
        also("received the output of a cut at zero", logits_from="Addmm", cut=True),
        also("1 call of binary_cross", function="binary_cross_entropy_with_logits", above="Relu"),
        also("1 call of cross_entropy", at="the recipe's loss", where=""),
    ],
)  # fmt: skip
def _(**fields):
    return LossFacts(losses=(loss(), loss(**{"logits_from": "Relu", **fields})))


@rule(
    "activation-before-cross-entropy",
    "3 gradients show logits that are the output of a relu",
    "Net",
    spared=[but(above="Addmm"), but(values="probabilities"), but(kind="binary", values="shares"), but(kind="distance")],
    also=[
        also("the output of a cut at zero", above="Addmm", cut=True),
        also("a relu", kind="binary", values="numbers"),
    ],
    limits={"count": Limit(2, 3)},
)
def _(count=3, **fields):
    return LossFacts(aims=(aim(**{"above": "Relu", **fields}),) * count)


@rule(
    "ctc-input-not-log-probabilities",
    "ctc_loss on (4, 50, 20): samples come first",
    "train.py:7",
    severity="error",
    spared=[but(fault=""), but(function="kl_div")],
    also=[also("ctc_loss on", at="the recipe's loss", where="")],
)
def _(fault="samples come first", function="ctc_loss", where="train.py:7"):
    return LossFacts(losses=(loss(function=function, shape=(4, 50, 20), layout_fault=fault, where=where),))


@rule(
    "kl-div-mean-over-elements",
    "1 call of kl_div on (8, 10) took the mean over all elements",
    "train.py:7",
    spared=[but(reduction="batchmean"), but(shape=(8,)), but(weights=[]), but(function="mse_loss")],
    also=[also("1 call of kl_div", at="the recipe's loss", where="")],
)
def _(**fields):
    return LossFacts(losses=(loss(**{"function": "kl_div", "weights": [1.0], **fields}),))


@rule(
    "logits-in-nll-loss",
    "1 call of nll_loss received numbers that are not log-probabilities",
    "train.py:7",
    severity="error",
    spared=[but(function="cross_entropy"), but(log_probabilities=True), but(above="Softmax")],
    also=[
        also("1 call of nll_loss received probabilities", probabilities=True, above="Softmax"),
        also("1 call of nll_loss", at="the recipe's loss", where=""),
    ],
)
def _(**fields):
    return LossFacts(losses=(loss(**{"function": "nll_loss", "log_probabilities": False, **fields}),))


@rule(
    "logits-in-nll-loss",
    "3 gradients only raise the target's entry of numbers that are not log-probabilities",
    "Net",
    spared=[but(kind="classes"), but(values="log-probabilities"), but(even=False), but(sign=-1), but(other="mse_loss"),
            but(falling=True)],
    also=[also("3 gradients only raise the target's entry of probabilities", values="plain probabilities")],
    limits={"count": Limit(2, 3)},
)  # fmt: skip
def _(count=3, other="cross_entropy", falling=False, **fields):
    aims = [aim(**{"kind": "picked", **fields})] * count + [aim(kind="picked", sign=-1)] * falling
    return LossFacts(losses=(loss(function=other),), aims=tuple(aims))


@rule(
    "probabilities-in-kl-div",
    "1 call of kl_div received a first argument that holds no log-probabilities",
    "train.py:7",
    severity="error",
    spared=[but(function="cross_entropy"), but(log_probabilities=True)],
    also=[
        also("1 call of kl_div: its target is turned", log_probabilities=True, layout_fault="its target is turned"),
        also("1 call of kl_div", at="the recipe's loss", where=""),
    ],
)  # fmt: skip
def _(**fields):
    return LossFacts(losses=(loss(**{"function": "kl_div", "log_probabilities": False, **fields}),))


@rule(
    "probabilities-in-kl-div",
    "3 gradients come from a divergence that takes no logarithm of the prediction",
    "Net",
    spared=[but(kind="classes"), but(values="log-probabilities"), but(sign=-1), but(others=1)],
    also=[also("3 gradients come from a divergence", kind="averaged", values="log-probabilities")],
    limits={"count": Limit(2, 3)},
)
def _(count=3, others=0, **fields):
    wrong = aim(**{"kind": "weighed", "values": "probabilities", **fields})
    return LossFacts(aims=(*[wrong] * count, *[aim(kind="weighed", values="log-probabilities")] * others))


@rule(
    "sigmoid-before-bce-with-logits",
    "1 call received the output of a sigmoid",
    "train.py:7",
    severity="error",
    spared=[but(above="Addmm"), but(function="binary_cross_entropy")],
    also=[
        also("1 call received the output of a softmax", above="Softmax"),
        also("1 call received", at="the recipe's loss", where=""),
    ],
)
def _(**fields):
    return LossFacts(losses=(loss(**{"function": "binary_cross_entropy_with_logits", "above": "Sigmoid", **fields}),))


@rule(
    "sigmoid-before-bce-with-logits",
    "in 3 backward calls the output of a sigmoid or softmax goes straight into a sigmoid",
    "train.py:8",
    severity="error",
    limits={"count": Limit(2, 3)},
)
def _(count=3):
    return LoopFacts(backwards=(*backwards(2, where="other.py:1"), *backwards(count, double_sigmoid=("gate",))))


@rule(
    "sigmoid-before-bce-with-logits",
    "3 gradients come from a loss that treats numbers between 0 and 1 as logits",
    "Net",
    severity="error",
    spared=[but(kind="classes"), but(values="numbers"), but(apart=True), but(others=1)],
    also=[also("3 gradients come from a loss", twice=2)],
    limits={"count": Limit(2, 3)},
)
def _(count=3, others=0, twice=0, **fields):
    squeezed = aim(**{"kind": "binary", "values": "shares", **fields})
    loop = LoopFacts(backwards=backwards(twice, double_sigmoid=("gate",)))
    return loop, LossFacts(aims=(*[squeezed] * count, *[aim(kind="binary")] * others))


@rule(
    "softmax-before-cross-entropy",
    "cross_entropy received probabilities 1 time: between 0 and 1, with a sum of 1 over classes",
    "train.py:7",
    severity="error",
    spared=[but(probabilities=False), but(function="nll_loss"), but(other=False)],
    also=[also("probabilities 2 times", other=True), also("probabilities 1 time", at="the recipe's loss", where="")],
    limits={"targets": Limit(7, 8)},
)
def _(targets=8, other=None, **fields):
    rows = (loss(**{"probabilities": True, "targets": targets, **fields}),)
    return LossFacts(losses=rows if other is None else (*rows, loss(probabilities=other)))


@rule(
    "softmax-before-cross-entropy",
    "in 1 of 2 backward calls, the output of a softmax in head goes straight into a log-softmax",
    "train.py:8",
    severity="error",
    spared=[but(doubled=()), but(above="Softmax")],
    also=[also("in 1 of 2 backward calls", above="Softmax", function="nll_loss", probabilities=True, given_too=True),
          also("in 1 of 2 backward calls", at="head", where="")],
)  # fmt: skip
def _(
    doubled=("head",), above="Addmm", function="cross_entropy", probabilities=False, given_too=False, where="train.py:8"
):
    rows = (loss(above=above, function=function, probabilities=probabilities),)
    rows += (loss(probabilities=True, targets=8, site=3),) * given_too
    calls = (backward(where="other.py:1"), backward(double_softmax=doubled, where=where))
    return LoopFacts(backwards=calls), LossFacts(losses=rows)


@rule(
    "softmax-before-cross-entropy",
    "1 gradients come from a cross-entropy that treats probabilities as logits",
    "Net",
    severity="error",
    spared=[but(kind="binary"), but(values="numbers")],
)
def _(kind="classes", values="probabilities"):
    return LossFacts(aims=(aim(kind=kind, values=values),))


@rule(
    "softmax-over-wrong-dimension",
    "1 loss received a softmax that does not sum to 1 over the 10 classes",
    "train.py:7",
    severity="error",
    spared=[but(above="Addmm"), but(probabilities=True), but(function="mse_loss"), but(function="ctc_loss"),
            but(above="LogSoftmax")],
    also=[
        also("1 loss received a softmax", above="LogSoftmax", log_probabilities=False),
        also("1 loss received a softmax", function="ctc_loss", above="LogSoftmax", log_probabilities=False),
        also("over the 3 classes", classes=3),
        also("1 loss received a softmax", at="the recipe's loss", where=""),
    ],
)  # fmt: skip
def _(**fields):
    return LossFacts(losses=(loss(), loss(**{"above": "Softmax", **fields})))


@rule(
    "softmax-over-wrong-dimension",
    "the softmax in attention runs over the samples of a batch: changing one sample changes the others by 0.5 standard",
    "attention",
    spared=[but(module="")],
    also=[also("the softmax in attention runs over the samples", severity="error", drawn=True)],
    limits={"change": Limit(3e-5, 3.01e-5, (0.0, 9.0))},
)
def _(change=0.5, module="attention", drawn=False):
    return ModelFacts(probes=(probe(softmax_over_batch=module, other_samples=change, drawn=drawn),))


@rule(
    "softmax-over-wrong-dimension",
    "the targets of 1 loss sum to 1 over a dimension that is not the classes",
    "train.py:7",
    severity="error",
    spared=[but(turned=False)],
)
def _(turned=True):
    return LossFacts(losses=(loss(turned_target=turned),))


@rule(
    "softmax-over-wrong-dimension",
    "a softmax over heads is followed by a sum over another dimension",
    "model.py:9",
    severity="error",
    spared=[but(kind="view")],
    also=[also("a softmax runs over heads", kind="samples"), also("a softmax runs over heads", kind="alone")],
)
def _(kind="product"):
    return ModelFacts(crossings=(Crossing(kind, "model.py:9", "heads"),))


@rule(
    "softmax-over-wrong-dimension",
    "the softmax in attention runs over the queries of square scores, and logits see later tokens",
    "attention",
    severity="error",
    spared=[but(module="")],
)
def _(module="attention"):
    return ModelFacts(probes=(probe(), probe(softmax_over_queries=module)))


# ------------------------------------------------------------------------------------------- the first loss


@rule(
    "far-off-initial-loss",
    "before the first update head makes its input many times as large",
    "head",
    spared=[but(names=())],
)
def _(names=("head",)):
    return ModelFacts(layouts=(layout(far_off=names),))


@rule(
    "far-off-initial-loss",
    "before the first update 3 layers return almost zero",
    "Net",
    also=[also("initialise with larger weights")],
    limits={"matrices": Limit(6, 5)},
)
def _(faint=3, matrices=5):
    return ModelFacts(layouts=(layout(faint=faint, matrices=matrices),))


@rule("far-off-initial-loss", "2 layers return almost zero", "Net", limits={"faint": Limit(1, 2)})
def _(faint=2):
    return ModelFacts(layouts=(layout(faint=faint, matrices=1),))


@rule(
    "far-off-initial-loss",
    "before the first update 3 of 5 layers make their input far larger",
    "Net",
    also=[also("initialise with smaller weights")],
    limits={"matrices": Limit(6, 5)},
)
def _(matrices=5):
    return ModelFacts(layouts=(layout(loud=3, matrices=matrices),))


@rule("far-off-initial-loss", "2 of 1 layers make their input far larger", "Net", limits={"loud": Limit(1, 2)})
def _(loud=2):
    return ModelFacts(layouts=(layout(loud=loud, matrices=1),))


@rule(
    "far-off-initial-loss",
    "the first predictions are at least 9 times as far off as a guess",
    "Net",
    spared=[but(update=1), but(kind="picked"), but(cosines=True), but(kind="binary", excess=5.0),
            but(classes=8, valid=8, distinct=8, shape=(8, 8))],
    also=[
        also("at least 5.5 times as far off", kind="binary", excess=5.5),
        also("at least 9 times", shape=()),
        also("at least 9 times", cosines=True, at_update=1),
    ],
    limits={"excess": Limit(2.0, 2.01)},
)  # fmt: skip
def _(excess=9.0, update=0, kind="classes", at_update=0, **fields):
    return LossFacts(losses=(loss(update=at_update, **fields),), aims=(aim(excess=excess, update=update, kind=kind),))


@rule(
    "far-off-initial-loss",
    "the first loss is 7; a uniform guess among 10 classes has 2.3",
    "train.py:7",
    spared=[but(value=None), but(function="nll_loss"), but(valid=0), but(update=1), but(classes=2),
            but(value=44.8, reduction="sum"), but(cosines=True)],
    also=[
        also("the first loss is 7;", value=56.0, reduction="sum"),
        also("the first loss is 7;", at="the recipe's model", where=""),
    ],
    limits={"value": Limit(5.605, 5.606)},
)  # fmt: skip
def _(**fields):
    return LossFacts(losses=(loss(**{"value": 7.0, "classes": 10, "valid": 8, **fields}), loss(value=99.0)))


# ------------------------------------------------------------------------------------------- the sign of a loss


def trained(count=4, weight=1.0, *, rows=(), each=None, taking_turns="", call=None, second=None, **facts):
    """A loop with a loss in every backward. Two optimizers may take turns, "apart" from each other or "together"."""
    order = [number % 2 if taking_turns else 0 for number in range(count)]
    both, first = frozenset({0, 1}), frozenset({0})
    held = [both if taking_turns == "together" or (taking_turns and n % 2) else first for n in range(count)]
    calls = [backward(update=n, optimizers=held[n], **(call or {})) for n in range(count)]
    losses = [loss(**{"weights": [weight], "backward": n, "site": 1, **(each or {})}) for n in range(count)]
    losses += [loss(backward=n, **fields) for n in range(count) for fields in rows]
    losses.append(loss(weights=[1.0], backward=-1, site=9))  # is never back-propagated
    optimizers = (optimizing(**facts), optimizing(**{**facts, **(second or {})}))
    made = tuple(update(number=n + 1, optimizer=number) for n, number in enumerate(order))
    return LoopFacts(backwards=tuple(calls), updates=made, optimizers=optimizers), LossFacts(losses=tuple(losses))


def with_aims(count, loop, losses, **fields):
    """The same, with the direction in which each backward pushed a prediction."""
    aims = [aim(**{"sign": -1, **fields, "backward": n}) for n in range(count)]
    aims.append(aim(**{**fields, "sign": 1, "backward": 99}))  # after the last update
    return loop, LossFacts(losses=losses.losses, aims=tuple(aims))


@rule(
    "negated-loss",
    "in all 4 backward calls the loss is maximised: it enters with a negative weight",
    "train.py:8",
    severity="error",
    spared=[but(weight=1.0), but(maximizes=True), but(taking_turns="apart"), but(of_models=False),
            but(taking_turns="together", second={"maximizes": True}),
            but(rows=({"weights": [0.1], "site": 2},))],
    also=[
        also("the loss is maximised: the optimizer has maximize=True", weight=1.0, maximizes=True),
        also("the loss is maximised", of_models=False, blueprint=True),
        also("the loss is maximised", of_models=False, empty=True),
        also("in all 4 backward calls the loss is maximised", taking_turns="together"),
        also("the loss is maximised", at="the recipe's loss", call={"where": ""}),
    ],
    limits={"count": Limit(1, 2, (0, 9)), "weight": Limit(1e-9, -1e-9, (-9.0, 9.0))},
)  # fmt: skip
def _(count=4, weight=-1.0, blueprint=False, empty=False, **facts):
    frozen = parameter(optimized=False, reached=False, trainable=False)
    held = () if empty else (parameter(reached=False), frozen, parameter(optimized=False, reached=not blueprint))
    models = ModelFacts(parameters=held)
    return *trained(count, weight, **facts), models


@rule(
    "negated-loss",
    "in all 4 backward calls the loss is maximised: it enters with a negative weight",
    "train.py:8",
    severity="error",
    spared=[but(ascends=False), but(maximizes=True), but(weight=1.0)],
)
def _(ascends=True, weight=0.0, maximizes=False):
    return trained(weight=weight, call={"ascends": ascends}, maximizes=maximizes)


@rule(
    "negated-loss",
    "in all 4 backward calls the loss of the labels is maximised: it enters with a negative weight",
    "train.py:8",
    spared=[but(distinct=0), but(weight=1.0)],
    limits={"count": Limit(3, 4, (0, 9))},
)
def _(count=4, weight=-1.0, distinct=2):
    penalty = {"function": "mse_loss", "weights": [0.1], "site": 2}
    labels = {"distinct": distinct, "fixed_target": False}
    return trained(count, weight, rows=(penalty,), each=labels)


@rule(
    "negated-loss",
    "in all 4 backward calls the loss is maximised: predictions move away from their targets",
    "train.py:8",
    spared=[but(sign=1), but(sign=0), but(even=False), but(apart=True), but(maximizes=True), but(weight=1.0),
            but(apart=True, kind="distance", class_numbers=2)],
    also=[also("predictions move away from their targets", apart=True, kind="distance")],
    limits={"aimed": Limit(2, 3, (0, 4))},
)  # fmt: skip
def _(aimed=3, weight=0.0, maximizes=False, **fields):
    return with_aims(aimed, *trained(weight=weight, maximizes=maximizes), **fields)


@rule(
    "negated-loss",
    "one term of the loss lowers the overlap of predictions with their masks",
    "train.py:8",
    spared=[but(sign=1), but(kind="classes"), but(maximizes=True)],
    also=[also("one term of the loss lowers the overlap", at="the recipe's loss", where="")],
    limits={"aimed": Limit(2, 3, (0, 4))},
)
def _(aimed=3, kind="overlap", sign=-1, maximizes=False, where="train.py:8"):
    weight = -1.0 if maximizes else 1.0
    made = trained(weight=weight, maximizes=maximizes, call={"where": where})
    return with_aims(aimed, *made, kind=kind, sign=sign)


@rule(
    "negated-loss",
    "in 3 backward calls the likelihood of the data is lowered",
    "train.py:7",
    spared=[but(sign=1), but(sign=0), but(rising=1), but(maximizes=True)],
    also=[
        also("the likelihood of a sample falls as its reward rises", of_data=False),
        also("the likelihood of the data", at="the recipe's loss", where=""),
    ],
    limits={"count": Limit(2, 3, (0, 4))},
)
def _(count=3, sign=-1, rising=0, maximizes=False, **fields):
    moved = [likelihood(**{"sign": sign, **fields, "backward": n}) for n in range(count)]
    loop, losses = trained(weight=0.0, maximizes=maximizes)
    others = (likelihood(sign=0), likelihood(sign=1, backward=99), *[likelihood()] * rising)
    return loop, LossFacts(losses=losses.losses, likelihoods=(*others, *moved))


@rule(
    "negated-loss",
    "one term of the loss, a mse_loss, enters with a negative weight next to others",
    "train.py:9",
    spared=[but(weight=0.1), but(function="cross_entropy"), but(fixed_target=False), but(rescaled=True),
            but(opposed=1), but(last=0.1)],
    also=[
        also("one term of the loss", at="the recipe's loss", where=""),
        also("one term of the loss", opposed=1, opponent=-1.0),
    ],
    limits={"count": Limit(3, 4, (2, 9))},
)  # fmt: skip
def _(count=4, weight=-0.1, last=None, function="mse_loss", fixed_target=True, where="train.py:9", rescaled=False,
      opposed=0, opponent=1.0):  # fmt: skip
    term = {"function": function, "weights": [weight], "site": 2, "fixed_target": fixed_target, "where": where}
    loop, losses = trained(count, rows=(term,))
    for each in [each for each in losses.losses if each.site == 2][-1:]:
        each.weights = [weight if last is None else last]
    made = tuple(update(number=each.number, rescaled=rescaled) for each in loop.updates)
    pulls = (loss(function="mse_loss", weights=[opponent], backward=99),) * opposed
    loop = LoopFacts(backwards=loop.backwards, updates=made, optimizers=loop.optimizers)
    return loop, LossFacts(losses=(*losses.losses, *pulls))
