"""The rules of gradients on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.gradients import Derivative, Discard, GradientFacts, Recomputation
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts, Term
from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.facts.ranks import RankFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.facts.updates import UpdateFacts
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import (
    backward,
    backwards,
    forward,
    loader,
    loss,
    optimizing,
    parameter,
    ranks,
    shadow,
    update,
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


# ------------------------------------------------------------------------------------------- what slows a backward


@rule(
    "anomaly-mode-in-training",
    "1 of 4 updates were made with anomaly detection on",
    "train.py:9",
    severity="info",
    spared=[but(on=False)],
    also=[also("with anomaly detection on", at="the loop", where="")],
)
def _(on=True, where="train.py:9"):
    return LoopFacts(updates=(*updates(3), update(anomaly=on, where=where)))


@rule(
    "anomaly-mode-in-training",
    "12 of 12 updates were made with a profiler on",
    "train.py:9",
    severity="info",
    limits={"profiled": Limit(11, 12), "rest": Limit(2, 1)},
)
def _(profiled=12, rest=0):
    return LoopFacts(updates=(*updates(profiled, profiled=True), *updates(rest)))


# ------------------------------------------------------------------------------------------- graphs that are cut


@rule(
    "detached-layers",
    "2 parameters with 40 elements affect the loss but never receive a gradient: body.weight, body.weight",
    "body",
    spared=[but(in_loss=None), but(in_loss=False), but(executed=False), but(trainable=False), but(optimized=False),
            but(reached=True), but(only_in="train.py:7"), but(moved=True), but(resting=True)],
    also=[
        also("2 parameters with 40 elements", reached=True, penalized=True),
        also("values drawn with sample()", at="model.py:4", drawn=("model.py:4",)),
    ],
    limits={"count": Limit(1, 2)},
)  # fmt: skip
def _(count=2, drawn=(), **fields):
    cut = parameter(**{"reached": False, "in_loss": True, "executed": True, "elements": 20, **fields})
    models = ModelFacts(parameters=(cut, cut))
    return LoopFacts(updates=updates(count)), models, GradientFacts(drawn_without_gradient=drawn)


@rule(
    "detached-loss",
    "in 2 of 2 backward calls the loss has a graph that does not reach the parameters of the optimizer",
    "train.py:8",
    severity="error",
    spared=[but(reaches_optimized=True), but(all_zero=False), but(followed_by_update=False)],
    also=[
        also("the loss has no graph, so it cannot reach", differentiable=False, followed_by_update=False),
        also("in 2 of 2 backward calls", at="the recipe's loss", where=""),
    ],
)
def _(all_zero=None, **fields):
    given_up = backwards(2, **{"reaches_optimized": False, **fields})
    return LoopFacts(backwards=given_up, updates=updates(2, all_zero=all_zero))


@rule(
    "detached-loss",
    "in 2 of 4 backward calls the loss has a graph that does not reach the parameters of the optimizer",
    "other.py:8",
    severity="error",
    spared=[but(with_gradient=1), but(late=40)],
    also=[also("in 2 of 4 backward calls", with_gradient=1, all_zero=True)],
    limits={"lost": Limit(1, 2, (0, 8)), "starved": Limit(1, 2, (0, 8))},
)
def _(lost=2, late=0, starved=2, with_gradient=0, all_zero=None):
    rows = updates(starved, optimizer=1, first=20, with_gradient=with_gradient, all_zero=all_zero)
    calls = [backward(update=n + late, where="other.py:8", reaches_optimized=False) for n in range(lost)]
    rows, calls = (*updates(2, all_zero=False), *rows), (*backwards(2), *calls)
    return LoopFacts(backwards=calls, updates=rows, optimizers=(optimizing(), optimizing()))


@rule(
    "loss-term-without-gradient",
    "a loss is computed from 1 parameter that no backward reaches, for example decoder.weight",
    "train.py:12",
    severity="error",
    spared=[but(only_in=""), but(optimized=False), but(trainable=False), but(calls=0)],
    limits={"count": Limit(1, 2)},
)
def _(count=2, calls=1, **fields):
    lost = parameter(**{"name": "decoder.weight", "only_in": "train.py:12", **fields})
    return LoopFacts(backwards=backwards(calls), updates=updates(count)), ModelFacts(parameters=(lost,))


@rule("loss-term-without-gradient", "is rounded, or only its sign is taken", "train.py:7", spared=[but(lines=())])
def _(lines=("train.py:7",)):
    return LossFacts(flat_lines=lines)


@rule(
    "loss-term-without-gradient",
    "a number between 0.1 and 0.4 is added to the back-propagated loss, but not to its graph",
    "train.py:7",
    spared=[but(step=0.0), but(elsewhere=True)],
    also=[
        also("a number between 0.1 and 0.4", at="the recipe's loss", where=""),
        also("without .item(), .detach() or float()", cut="item"),
        also("pass create_graph=True to torch.autograd.grad", cut="grad"),
    ],
    limits={"count": Limit(3, 4)},
)
def _(count=4, step=0.1, where="train.py:7", elsewhere=False, cut=""):
    terms = tuple(Term(f"train.py:{n}" if elsewhere else where, 0.1 + step * n, cut) for n in range(count))
    return LossFacts(terms=terms)


@rule(
    "gradients-into-fixed-network",
    "Target follows another network, like a teacher or target, but an optimizer trains it too",
    "Target",
    spared=[but(follows=False), but(elements=21), but(leader=True), but(reached=False)],
)
def _(follows=True, elements=20, leader=False, reached=True):
    target = parameter(model="Target", follows=follows, elements=elements, reached=reached)
    return ModelFacts(parameters=(parameter(elements=20, follows=leader), target))


@rule(
    "gradients-into-fixed-network",
    "ema follows another network, like a teacher or target, but an optimizer trains it too",
    "ema",
    spared=[but(trained=False), but(follows=False)],
    also=[also("ema follows another network", shares=0, copied=True), also("ema follows", shares=1, elsewhere=1)],
    limits={"shares": Limit(1, 2)},
)
def _(shares=2, trained=True, follows=True, **fields):
    return ModelFacts(shadows=(shadow(trained=trained, follows=follows, shares=(0.01,) * shares, **fields),))


@rule(
    "gradients-into-fixed-network",
    "1 parameters of Teacher receive gradients, but no optimizer holds it, and nothing before it needs them",
    "Teacher",
    spared=[but(reached=False), but(trainable=False), but(optimized=True), but(learner=False), but(graded=True),
            but(partly_frozen=True)],
    limits={"ran": Limit(1, 2, (0, 8))},
)  # fmt: skip
def _(ran=2, learner=True, graded=False, partly_frozen=False, **fields):
    held = [parameter(**{"model": "Teacher", "optimized": False, **fields}), parameter(optimized=learner)]
    held += [parameter(model="Teacher", optimized=False, trainable=False)] * partly_frozen
    calls = tuple(forward(model="Teacher", update=n, input_graded=graded) for n in range(ran))
    calls += tuple(forward(update=n) for n in range(4))
    return LoopFacts(forwards=calls, updates=updates(2)), ModelFacts(parameters=tuple(held))


# ------------------------------------------------------------------------------------------- graphs that are kept


@rule(
    "growing-graph",
    "the graph grew from 10 to 16 nodes over 4 backward calls on inputs of one shape",
    "train.py:8",
    severity="error",
    spared=[but(nodes=(10, 12, 16)), but(nodes=(10, 14, 14, 16)), but(old=(0,) * 4), but(varied=True)],
    also=[
        also("grew from 10 to 16 nodes", old=(0,) * 4, made=0),
        also(
            "from 1 to 4 nodes of earlier updates over 4 backward calls on one line", nodes=(9,) * 4, old=(1, 2, 3, 4)
        ),
        also("grew from 10 to 16 nodes", at="the recipe's loss", where=""),
    ],
    limits={"last": Limit(14, 15, (13, 99))},
)
def _(nodes=(10, 12, 13, 16), last=0, old=(1, 1, 1, 1), made=4, varied=False, where="train.py:8"):
    counts = (*nodes[:3], last) if last else nodes
    calls = (
        backward(where=where, nodes=count, old_nodes=before, shapes=((n if varied else 8, 4),))
        for n, (count, before) in enumerate(zip(counts, old, strict=False))
    )
    return LoopFacts(backwards=tuple(calls), updates=updates(made))


@rule(
    "growing-graph",
    "from 1 to 4 nodes of earlier updates over 4 backward calls on one line",
    "train.py:8",
    severity="error",
    limits={"grows": Limit(3, 4, (1, 30))},
)
def _(grows=4):
    calls = (backward(nodes=9, old_nodes=n + 1, shapes=((n,),)) for n in range(grows))
    return LoopFacts(backwards=tuple(calls), updates=updates(grows))


@rule(
    "kept-losses",
    "2 graphs from three or more updates ago still exist after 8 updates",
    "train.py:8",
    also=[also("2 graphs", at="the loop", where="")],
    limits={"kept": Limit(1, 2)},
)
def _(kept=2, where="train.py:8"):
    return LoopFacts(backwards=backwards(8, where=where), updates=updates(8)), GradientFacts(kept_graphs=kept)


# ------------------------------------------------------------------------------------------- tensors that are changed


@rule(
    "input-changed-in-place",
    "1 of 2 forward calls wrote into their input",
    "Net",
    severity="info",
    spared=[but(wrote=False)],
)
def _(wrote=True):
    return LoopFacts(forwards=(forward(model="Other"), forward(wrote_input=wrote)))


@rule(
    "overwritten-saved-tensor",
    "in 1 of 2 forward calls, 1 tensor changed before the backward, for example head.weight",
    "head.weight",
    severity="error",
    spared=[but(names=())],
    also=[also("is written to through its .data", at="train.py:9", severity="warning", lines=("train.py:9",))],
)
def _(names=("head.weight",), lines=()):
    loop = LoopFacts(forwards=(forward(), forward(overwritten=names)))
    return loop, GradientFacts(written_through_data=lines)


@rule(
    "recomputation-differs",
    "1 module gave a different result when run again in backward; blocks.0 by 0.25 of its size",
    "blocks.0",
    severity="error",
    spared=[but(count=0)],
)
def _(count=1):
    return GradientFacts(recomputations=(Recomputation("blocks.0", 0.25),) * count)


@rule(
    "wrong-custom-backward",
    "the backward of Swish predicts 1.5 times the change of its forward",
    "Swish",
    spared=[but(share=1.0), but(share=0.99)],
    also=[also("predicts 0.5 times", share=0.5)],
    limits={"share": Limit(1.0199, 1.0201, (0.9801, 5.0))},
)
def _(share=1.5):
    return GradientFacts(derivatives=(Derivative("Swish", share),))


# ------------------------------------------------------------------------------------------- gradients of an update


@rule(
    "missing-zero-grad",
    "in 1 of 2 updates, gradients still held what an earlier update had used; first in update 2: 1 of 2 parameters",
    "train.py:9",
    severity="error",
    spared=[but(carried=())],
)
def _(carried=("body.weight",)):
    return LoopFacts(updates=(update(where="other.py:1"), update(number=2, carried=carried)))


@rule(
    "missing-zero-grad",
    "3 times, backward added to gradients that had already moved their weights",
    "train.py:8",
    severity="error",
    also=[also("3 times", at="the loop", where="")],
    limits={"times": Limit(2, 3)},
)
def _(times=3, where="train.py:8"):
    return LoopFacts(backwards=backwards(4, where=where)), UpdateFacts(carried_by_hand=times)


@rule(
    "nonfinite-gradients",
    "1 of 2 updates used infinite or NaN gradients; first in update 2: 1 of 2 parameters, for example body.weight",
    "train.py:9",
    severity="error",
    spared=[but(nonfinite=())],
    also=[also("1 of 2 updates", at="body.weight", where="")],
)
def _(nonfinite=("body.weight",), where="train.py:9"):
    return LoopFacts(updates=(update(), update(number=2, nonfinite=nonfinite, where=where)))


@rule(
    "nonfinite-gradients",
    "in 2 backward calls the loss was nan, although gradients were finite",
    "train.py:8",
    severity="error",
    spared=[but(value=1.0), but(value=None), but(scale=65536.0), but(reaches_optimized=False)],
    also=[also("the loss was inf", at="the recipe's loss", value=math.inf, where="")],
    limits={"count": Limit(1, 2)},
)
def _(count=2, value=math.nan, **fields):
    return LoopFacts(backwards=backwards(count, value=value, **fields))


@rule(
    "repeated-backward",
    "1 of 2 backward calls started from a loss that was already back-propagated since the last update",
    "train.py:10",
    spared=[but(repeated=False)],
    also=[also("1 of 2 backward calls", at="the recipe's loss", where="")],
)
def _(repeated=True, where="train.py:10"):
    return LoopFacts(backwards=(backward(), backward(repeated=repeated, where=where)))


@rule(
    "zero-grad-between-micro-batches",
    "of 14 backward calls of this line, the gradients of 6 were cleared before any update used them",
    "train.py:8",
    severity="error",
    also=[also("the gradients of 6", at="the loop", where="")],
    limits={"discarded": Limit(5, 6), "used": Limit(1, 2, (0, 8))},
)
def _(discarded=6, used=8, where="train.py:8"):
    return GradientFacts(discards=(Discard(where, discarded, used),))


# ------------------------------------------------------------------------------------------- micro-batches


@rule(
    "leftover-micro-batches",
    "a pass over 10 batches ended with the gradients of 2 of 4 micro-batches unused",
    "the loader of Images",
    spared=[but(leftover=0)],
)
def _(leftover=2):
    return SampleFacts(loaders=(loader(leftover=leftover, window=4),))


@rule(
    "leftover-micro-batches",
    "1 update used the gradients of 6 backward calls, nearly all others of 4",
    "train.py:9",
    spared=[but(lines=2), but(times=3), but(usual=1, larger=2)],
    also=[also("1 update", at="the loop", where=""), also("2 updates used", count=6, times=2)],
    limits={"count": Limit(6, 7), "larger": Limit(8, 7, (5, 30)), "odd": Limit(2, 1, (1, 6))},
)
def _(count=8, usual=4, larger=6, times=1, lines=1, odd=0, where="train.py:9"):
    rows = (*updates(count, micro_batches=usual, lines=1, where=where),)
    rows += updates(times, micro_batches=larger, lines=lines) + updates(odd, micro_batches=usual - 1, lines=1)
    return LoopFacts(updates=rows)


@rule(
    "leftover-micro-batches",
    "the gradients of 2 backward calls were cleared before any update used them",
    "train.py:9",
    spared=[but(usual=1)],
    limits={"discarded": Limit(1, 2, (0, 5)), "used": Limit(2, 3)},
)
def _(discarded=2, used=8, usual=4):
    loop = LoopFacts(updates=updates(8, micro_batches=usual, lines=1))
    return loop, GradientFacts(discards=(Discard("train.py:8", discarded, used),))


def accumulated(counts, weights, *, made=1, rows="losses", beside=False, fields=None, reach=(1, 1), in_turn=(), **each):
    """Losses of micro-batches, one in each backward, in so many updates. `beside` adds another term to each.

    `in_turn` are fields of a loss that differ from one micro-batch to the next.
    """
    calls, lines = [], []
    for number in range(made):
        for turn, (count, weight) in enumerate(zip(counts, weights, strict=True)):
            place = {"update": number, "backward": len(calls)}
            one = {"valid": count, "targets": count, "weights": [weight], "target_print": len(calls), "site": 1, **each}
            one |= in_turn[turn] if in_turn else {}
            lines.append(loss(**one, **place))
            if beside:
                lines.append(loss(function="mean", weights=[weight], site=2, **place))
            calls.append(backward(update=number, site=1, reach=reach[turn], **(fields or {})))
    return tuple(calls), LossFacts(**{rows: tuple(lines)})


@rule(
    "mean-of-unequal-means",
    "ranks with 8, 2 valid targets get equal weight, each as its own mean",
    "the loop",
    spared=[but(counts=()), but(alone=True)],
)
def _(counts=(8, 2), alone=False):
    return RankFacts(ranks=None if alone else ranks(target_counts=counts))


@rule(
    "mean-of-unequal-means",
    "micro-batches with 8, 2 valid targets get equal weight, each as its own mean",
    "train.py:8",
    spared=[but(weights=(0.8, 0.2)), but(weights=(1.0, 1.0)), but(counts=(8, 6)), but(followed=False),
            but(counts=(8, 7), made=2)],
    also=[
        also("with 8, 6 valid targets", counts=(8, 6), made=2),
        also("with 8, 7 valid targets", at="the loop", counts=(8, 7), made=2, where=""),
    ],
    limits={"short": Limit(6, 5, (1, 8))},
)  # fmt: skip
def _(counts=(8, 2), short=None, weights=(0.5, 0.5), made=1, followed=True, where="train.py:8"):
    fields = {"where": where, "followed_by_update": followed}
    counts = counts if short is None else (8, short)
    calls, losses = accumulated(counts, weights, made=made, fields=fields, targets=8)
    return LoopFacts(backwards=calls), losses


@rule(
    "mean-of-unequal-means",
    "micro-batches with 8, 6 valid targets",
    "train.py:8",
    spared=[but(counts=(8, 7)), but(counts=(8, 7), where=""), but(made=1, counts=(7, 1))],
    also=[also("micro-batches with 8, 1 valid targets", made=1, counts=(8, 1))],
    limits={"made": Limit(3, 4)},
)
def _(made=4, counts=(8, 6), where="train.py:8"):
    """The last batch of a pass may be smaller, but not that of every update, and not by much."""
    calls, losses = accumulated(counts, (0.5, 0.5), made=made, fields={"where": where})
    return (
        LoopFacts(backwards=calls),
        losses,
        SampleFacts(loaders=(loader(role="evaluation", passes=9), loader(passes=1))),
    )


@rule(
    "mean-of-unequal-means",
    "micro-batches with 6, 3 valid targets",
    "train.py:8",
    spared=[but(counts=(6, 6))],
    also=[also("micro-batches with 6, 3 valid targets", beside=True)],
)
def _(counts=(6, 3), beside=False):
    weights = [1 / (2 * count) for count in counts]  # each sum is divided by the count of a mask
    by_hand = {"function": "sum", "reduction": "sum", "shape": (8,), "valid": 8}
    calls, losses = accumulated(counts, weights, rows="reductions", beside=beside, **by_hand)
    return LoopFacts(backwards=calls), losses


@rule(
    "summed-micro-batches",
    "in 2 updates, 2 micro-batches add their mean losses with weight 1 each",
    "train.py:8",
    spared=[
        but(rescaled=True), but(loaders=2), but(fed_by=("itself",) * 2), but(same_inputs=True), but(discarded=2),
        but(fed_by=("", "another")), but(in_turn=({"constant": 0.0}, {"constant": 1.0})), but(reach=(1, 2)),
        but(target_print=7), but(fields={"where": ""}), but(fields={"in_update": True}),
        but(fields={"followed_by_update": False}), but(fields={"cleared": True}), but(reduction="none"),
    ],
    also=[
        also("2 micro-batches add", weight=1024.0, fields={"scale": 1024.0}),
        also("2 micro-batches add", target_print=7, valid=11),
        also("2 micro-batches add", discarded=1),
        also("2 micro-batches add", target_print=0),
        also("2 micro-batches add", target_print=7, constant=1.0),
        also("2 micro-batches add", in_turn=({"constant": 0.0}, {"constant": None})),
        also("2 micro-batches add", same_inputs=True, learned=False),
        also("2 micro-batches add", same_inputs=True, known=False),
        also("2 micro-batches add", fed_by=("itself",) * 2, learned=False),
        also("2 micro-batches add", steps=1, rescaled=True),
        also("2 micro-batches add", steps=1, loaders=2),
        also("2 micro-batches add", inner=("asked", True)),
        also("2 micro-batches add", inner=("in_update", True)),
        also("2 micro-batches add", inner=("site", 5)),
        also("2 micro-batches add", earlier=True),
    ],
    limits={"made": Limit(1, 2, (0, 8)), "weight": Limit(0.9998, 0.99995, (0.0, 1.0))},
)  # fmt: skip
def _(made=2, weight=1.0, rescaled=False, loaders=1, steps=0, fed_by=("", ""), same_inputs=False, known=True,
      learned=True, discarded=0, inner=(), earlier=False, fields=None, **each):  # fmt: skip
    calls, losses = accumulated((12, 12), (weight,) * 2, made=made, fields=fields, **each)
    forwards = tuple(
        forward(
            update=call.update,
            backpropagated=learned,
            fed_by=fed_by[number % 2],
            batch=known * (1 if same_inputs else 1 + number),
        )
        for number, call in enumerate(calls)
    )
    rows = (*updates(0 if steps else made, rescaled=rescaled, loaders=loaders),)
    rows += updates(steps, first=99, rescaled=rescaled, loaders=loaders)  # other updates
    if inner:  # other calls of backward before each update
        calls += tuple(backward(update=n, **{"site": 1, "reach": 1, inner[0]: inner[1]}) for n in range(made))
    if earlier:  # long before the updates that count, a model ran twice on one batch, after itself
        forwards += (forward(model="Old", update=77, backpropagated=True, fed_by="itself", batch=5),) * 2
    loop = LoopFacts(forwards=forwards, backwards=calls, updates=rows)
    return loop, losses, GradientFacts(discards=(Discard("train.py:8", discarded, 4),))


@rule(
    "summed-micro-batches",
    "2 micro-batches add their mean losses with weight 1 each",
    "train.py:8",
    spared=[but(joint=0.5), but(joint=None), but(weight=0.5)],
    also=[also("in 2 updates, 2 micro-batches add", penalty=True)],
)
def _(joint=1.0, weight=1.0, penalty=False):
    """Two losses in each micro-batch, and a penalty by hand."""
    calls, losses = accumulated((12, 12), (weight,) * 2, made=2, beside=True, fields={"joint": joint})
    by_hand = [loss(function="mean", weights=[weight], backward=n, update=n // 2, valid=8) for n in range(4)] * penalty
    return LoopFacts(backwards=calls), LossFacts(losses=losses.losses, reductions=tuple(by_hand))


@rule(
    "summed-micro-batches",
    "2 micro-batches add their mean losses with weight 1 each",
    "train.py:8",
    spared=[but(weight=1 / 16), but(counted=False)],
    also=[also("2 micro-batches add", function="mse_loss", weight=1 / 7)],
)
def _(weight=1 / 8, function="sum", counted=True):
    """Sums that are divided by the number of samples."""
    by_hand = {"function": function, "reduction": "sum", "shape": (8,), "valid": 8}
    counts = (8, 8) if counted else (8,)
    calls, losses = accumulated(counts, (weight,) * len(counts), made=2, rows="reductions", **by_hand)
    return LoopFacts(backwards=calls), losses
