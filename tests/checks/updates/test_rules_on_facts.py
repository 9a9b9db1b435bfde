"""The rules of updates on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts, Tuning
from surefoot.checks.facts.ranks import RankFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.facts.updates import UpdateFacts
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import (
    backwards,
    clip,
    forward,
    hidden_module,
    leaf,
    loader,
    optimizing,
    parameter,
    ranks,
    schedule,
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


# ------------------------------------------------------------------------------------------- settings of the machine


@rule("benchmarked-kernels", "cudnn.benchmark is on", "torch.backends.cudnn", severity="info", spared=[but(on=False)])
def _(on=True):
    return UpdateFacts(benchmarks_kernels=on)


@rule("idle-accelerator", "cuda:0 is available and holds none", "the model", severity="info", spared=[but(device="")])
def _(device="cuda:0"):
    return UpdateFacts(idle_accelerator=device)


# ------------------------------------------------------------------------------------------- clipping


@rule(
    "clipping-scaled-gradients",
    "1 of 2 calls clipped gradients before scaler.unscale_()",
    "train.py:11",
    severity="error",
    spared=[but(scaled=False), but(unlimited=True)],
)
def _(scaled=True, unlimited=False):
    return UpdateFacts(clips=(clip(), clip(where="train.py:11", scaled=scaled, unlimited=unlimited)))


@rule(
    "clipping-without-effect",
    "2 of 2 calls were on gradients that the last update had already used",
    "train.py:10",
    severity="error",
    spared=[
        but(unlimited=True),
        but(unused=("train.py:13",), share=0.5),
        but(calls=3, share=0.5, used_already=False),
        but(calls=3, share=0.5, used_already=False, with_gradient=0, trainable=False),
        but(calls=3, share=0.5, used_already=False, with_gradient=0, optimized=False),
    ],
    also=[
        also("were on an empty list of parameters", parameters=0),
        also("were on parameters that no optimizer holds", optimized=False),
        also("were on parameters without any gradient", with_gradient=0),
        also("were before the last backward of an update", used_already=False),
        also("2 calls clipped at most 10.0% of the elements", severity="warning", share=0.1),
        also("3 of 3 calls were on gradients that the last update had", calls=3, share=0.5),
        also("3 of 3 calls were on parameters without any", calls=3, share=0.5, used_already=False, with_gradient=0),
        also("2 of 3 calls were on gradients that the last update had", calls=2, right=1),
        also("into new tensors that nothing ever uses", at="train.py:13", unused=("train.py:13",)),
    ],
    limits={"calls": Limit(1, 2), "count": Limit(1, 2), "share": Limit(0.2, 0.1999, (0.0, 1.0))},
)
def _(calls=2, count=2, share=0.0, unused=(), right=0, **fields):
    clips = (clip(**{"used_already": True, **fields}),) * calls + (clip(),) * right
    return LoopFacts(updates=updates(count, clipped_share=share)), UpdateFacts(clips=clips, unused_limits=unused)


# ------------------------------------------------------------------------------------------- what an optimizer holds


@rule(
    "missing-update",
    "3 backward calls reached parameters of SGD, but it made no update",
    "train.py:8",
    severity="error",
    spared=[but(made=1), but(idle=()), but(by_hand=True), but(others=2, moved=True), but(others=2, ended=False),
            but(others=2, seen=ranks())],
    also=[also("3 backward calls reached parameters of SGD", others=2)],
    limits={"reaching": Limit(2, 3)},
)  # fmt: skip
def _(reaching=3, made=0, idle=(0,), by_hand=False, others=0, moved=False, ended=True, seen=None):
    loop = LoopFacts(
        backwards=backwards(reaching, idle=frozenset(idle)),
        updates=updates(others, optimizer=1),
        optimizers=(optimizing(updates=made, moved=moved), optimizing(updates=others)),
        weights_by_hand=by_hand,
        ended=ended,
    )
    return loop, RankFacts(ranks=seen)


@rule(
    "only-frozen-parameters-in-optimizer",
    "all 2 parameters of SGD have requires_grad=False",
    "SGD",
    severity="error",
    spared=[but(frozen=1), but(made=0), but(parameters=0, frozen=0)],
)
def _(frozen=2, parameters=2, made=4):
    return LoopFacts(optimizers=(optimizing(updates=made, parameters=parameters, frozen=frozen),))


@rule(
    "only-frozen-parameters-in-optimizer",
    "have requires_grad=False in the first 3 updates",
    "SGD",
    severity="error",
    spared=[but(between=1)],
    limits={"idle": Limit(2, 3, (0, 40)), "rest": Limit(7, 6)},
)
def _(idle=3, rest=6, between=0):
    rows = [*updates(idle, frozen=True), *updates(rest, first=idle + 1)]
    rows[1:1] = [update(number=2, optimizer=1)] * between
    rows = [update(number=0, optimizer=1), *rows, update(number=99, optimizer=1)]
    return LoopFacts(updates=tuple(rows), optimizers=(optimizing(), optimizing()))


@rule(
    "optimizer-of-other-parameters",
    "2 of 2 parameters of SGD belong to no model that ran, for example one of (4, 8)",
    "SGD",
    severity="error",
    spared=[but(foreign=()), but(made=0), but(parameters=3)],
    also=[
        also("2 of 3 parameters", parameters=3, frozen=1),
        also("2 of 3 parameters", parameters=3, outside=True),
    ],
)
def _(foreign=("(4, 8)", "(4,)"), parameters=2, frozen=0, made=4, outside=False):
    held = optimizing(foreign=foreign, parameters=parameters, frozen=frozen, updates=made)
    return LoopFacts(optimizers=(held,)), ModelFacts(parameters=(parameter(optimized=not outside),))


@rule(
    "optimizer-of-other-parameters",
    "the last 3 updates of SGD no longer had a gradient to use",
    "SGD",
    severity="error",
    spared=[but(trainable=False), but(reached=False), but(optimized=True), but(graded=0)],
    limits={"lost": Limit(2, 3, (0, 40))},
)
def _(graded=1, lost=3, trainable=True, reached=True, optimized=False):
    rows = (*updates(graded), *updates(lost, first=graded + 1, with_gradient=0), update(number=99, optimizer=1))
    outside = parameter(trainable=trainable, reached=reached, optimized=optimized)
    return LoopFacts(updates=rows, optimizers=(optimizing(),)), ModelFacts(parameters=(outside,))


@rule(
    "parameter-in-two-optimizers",
    "SGD and AdamW both update 2 parameters, for example body.weight",
    "body",
    spared=[but(second=())],
)
def _(second=("body.weight", "body.bias")):
    first = optimizing(doubly_held=("body.weight", "body.bias"))
    return LoopFacts(optimizers=(first, optimizing(kind="AdamW", doubly_held=second)))


@rule(
    "parameter-outside-optimizer",
    "1 of 2 parameters receive gradients that no optimizer uses: head.weight",
    "head",
    severity="error",
    spared=[but(trainable=False), but(reached=False), but(optimized=True), but(moved=True), but(model="Teacher"),
            but(optimizers=0)],
)  # fmt: skip
def _(optimizers=1, **fields):
    outside = parameter(**{"name": "head.weight", "optimized": False, **fields})
    loop = LoopFacts(optimizers=(optimizing(),) * optimizers)
    return loop, ModelFacts(parameters=(parameter(), outside))


@rule(
    "parameter-outside-optimizer",
    "1 of 2 parameters receive gradients that no optimizer uses: hook.down",
    "hook",
    spared=[but(registered=""), but(fixed=False), but(hidden=True)],
    limits={"count": Limit(1, 2)},
)
def _(registered="hook.down", fixed=True, hidden=False, count=2):
    beside = leaf(registered=registered, fixed=fixed)
    models = ModelFacts(parameters=(parameter(),), leaves=(beside,), hidden_modules=(hidden_module(reached=hidden),))
    return LoopFacts(updates=updates(count), optimizers=(optimizing(),)), models


# ------------------------------------------------------------------------------------------- learning rates


@rule(
    "rate-too-large-for-adam",
    "AdamW has a learning rate of 0.1 in all 3 updates",
    "train.py:9",
    spared=[but(kind="SGD"), but(of_models=False), but(last=0.01), but(optimized=False), but(trainable=False)],
    limits={"rate": Limit(0.0999, 0.1), "elements": Limit(999, 1000), "count": Limit(0, 1)},
)
def _(rate=0.1, last=1.0, elements=1000, count=2, kind="AdamW", of_models=True, optimized=True, trainable=True):
    rows = (*updates(count, rate=rate), update(number=count + 1, rate=last), update(optimizer=1, rate=1e-3))
    model = ModelFacts(parameters=(parameter(elements=elements, optimized=optimized, trainable=trainable),))
    return LoopFacts(updates=rows, optimizers=(optimizing(kind=kind, of_models=of_models),)), model


@rule(
    "rate-unusual-for-method",
    "AdamW trains all weights of Net with a learning rate of 0.01; usual is about 2e-05",
    "train.py:9",
    spared=[but(kind="SGD"), but(method="adapters")],
    also=[
        also("a learning rate of 0.01", at="the recipe's optimizer", where=""),
        also("what the model knows is overwritten"),
    ],
    limits={"rate": Limit(2e-3, 2.001e-3, (1e-8, 1.0)), "count": Limit(1, 2)},
)
def _(rate=1e-2, kind="AdamW", method="all weights", count=2, where="train.py:9"):
    rows = (*updates(count, rate=rate, where=where), update(optimizer=1, rate=1.0))
    loop = LoopFacts(updates=rows, optimizers=(optimizing(kind=kind),))
    return loop, ModelFacts(tunings=(Tuning(0, "Net", method),))


@rule(
    "rate-unusual-for-method",
    "AdamW trains adapters of Net with a learning rate of 5e-07; usual is about 0.0002",
    "train.py:9",
    spared=[but(rate=0.0), but(planned=1e-4), but(method="all weights")],
    also=[also("the weights hardly move")],
    limits={"rate": Limit(1e-6, 9.99e-7, (1e-12, 1e-2))},
)
def _(rate=5e-7, planned=None, method="adapters"):
    loop = LoopFacts(updates=updates(2, rate=rate, planned_rate=planned), optimizers=(optimizing(kind="AdamW"),))
    return loop, ModelFacts(tunings=(Tuning(0, "Net", method),))


@rule(
    "swapped-betas",
    "AdamW has betas (0.999, 0.9)",
    "train.py:9",
    spared=[but(first=None)],
    limits={"first": Limit(0.9, 0.9001, (0.0, 1.0))},
)
def _(first=0.999):
    held = optimizing(kind="AdamW", betas=(first, 0.9) if first is not None else None)
    return LoopFacts(optimizers=(optimizing(), held), updates=(update(where="other.py:1"), update(optimizer=1)))


@rule(
    "zero-learning-rate",
    "the learning rate of SGD is 0 in all 2 updates",
    "train.py:9",
    severity="error",
    spared=[but(last=1e-9)],
    limits={"count": Limit(0, 1)},
)
def _(count=1, last=0.0):
    rows = (*updates(count, rate=0.0), update(number=count + 1, rate=last), update(optimizer=1, rate=0.1))
    return LoopFacts(updates=rows, optimizers=(optimizing(),)), UpdateFacts()


@rule(
    "zero-learning-rate",
    "only rose to 2.0e-02 in 8 updates; 0.1 was planned",
    "train.py:9",
    severity="error",
    spared=[but(planned=None), but(planned=0.5), but(ended=False), but(calls=0), but(falls=(0.01,)),
            but(by_hand=True, falls=(0.02, 0.02)), but(by_hand=True, falls=(0.01, 0.015, 0.019))],
    also=[also("only rose to 2.0e-02", calls=0, by_hand=True), also("rose to 5.0e-04", highest=5e-4, falls=(0.0,))],
    limits={"highest": Limit(0.03, 0.0299, (1e-4, 0.1)), "count": Limit(7, 8, (2, 40))},
)  # fmt: skip
def _(highest=0.02, falls=(), count=8, planned=0.1, ended=True, calls=8, by_hand=False):
    rates = (*(highest * (n + 1) / count for n in range(count)), *falls)
    course = schedule(rates=rates, ended=ended, calls=calls, by_hand=by_hand, optimizer=0)
    loop = LoopFacts(updates=updates(2, rate=0.01, planned_rate=planned), optimizers=(optimizing(),))
    return loop, UpdateFacts(schedules=(course,))


@rule(
    "zero-learning-rate",
    "drops to 0 at once and stays there: the last 3 of 8 updates",
    "train.py:9",
    severity="error",
    spared=[but(ended=False), but(others=1), but(off=6, again=(0.1,)), but(on=2, off=2), but(number=1)],
    limits={"off": Limit(2, 3, (0, 40)), "on": Limit(6, 5, (2, 40)), "last": Limit(0.05, 0.0501, (0.001, 0.1))},
)
def _(on=5, last=0.1, off=3, again=(), ended=True, others=0, number=0):
    rates = (0.1,) * (on - 1) + (last,) + (0.0,) * off + again
    course = schedule(rates=rates, ended=ended, others_updated=others, optimizer=number)
    loop = LoopFacts(updates=updates(2, rate=0.1), optimizers=(optimizing(),))
    return loop, UpdateFacts(schedules=(course,))


# ------------------------------------------------------------------------------------------- updates that do nothing


@rule(
    "update-without-effect",
    "2 updates of SGD with gradients and a rate of 1e-12 changed no weight",
    "train.py:9",
    severity="error",
    spared=[but(moved=True), but(moved=None), but(rate=0.0), but(half="bfloat16")],
    limits={"count": Limit(1, 2)},
)
def _(count=2, moved=False, rate=1e-12, half=""):
    rows = (*updates(count, moved=moved, rate=rate, half=half), update(optimizer=1, moved=True))
    return LoopFacts(updates=rows, optimizers=(optimizing(),))


@rule(
    "update-without-gradients",
    "in all 2 updates of SGD, none of its parameters had a gradient",
    "train.py:9",
    severity="error",
    spared=[but(graded=1), but(graded=1, zero=False), but(later=2), but(later=2, read=False)],
    also=[also("in all 2 updates of SGD, every gradient was exactly zero", graded=1, zero=True)],
    limits={"count": Limit(1, 2)},
)
def _(count=2, graded=0, zero=None, later=0, read=None):
    rows = updates(count, with_gradient=graded, all_zero=zero)
    other = update(optimizer=1, all_zero=False)
    return LoopFacts(
        updates=(*rows, *updates(later, first=count + 1, all_zero=read), other), optimizers=(optimizing(),)
    )


@rule(
    "update-without-gradients",
    "3 of 4 forward calls were back-propagated only after their update",
    "train.py:9",
    severity="error",
    spared=[but(optimizers=2), but(count=1), but(early=2)],
    limits={"late": Limit(1, 2), "early": Limit(2, 1)},
)
def _(late=3, early=1, count=4, optimizers=1):
    forwards = (forward(late_backward=True),) * late + (forward(),) * early
    return LoopFacts(forwards=forwards, updates=updates(count), optimizers=(optimizing(),) * optimizers)


# ------------------------------------------------------------------------------------------- schedules


def scheduled(micro_batches=1, seen=None, **fields):
    """A schedule in a loop of so many micro-batches. The micro-batches of some updates are not known."""
    loop = LoopFacts(updates=(update(micro_batches=micro_batches), *updates(2)))
    return loop, UpdateFacts(schedules=(schedule(**fields),)), RankFacts(ranks=seen)


@rule(
    "scheduler-at-wrong-rate",
    "CosineAnnealingLR: 16 steps over 16 updates; it ended after 4 steps, the number of passes, and the rate rises",
    "train.py:6",
    severity="error",
    spared=[but(passes=5), but(calls=5), but(calls=5, updates=5)],
    also=[
        also("it ended after 4 steps, and the rate rises again", severity="warning", ended=False),
        also("it ended after 4 steps, and the rate rises again", severity="warning", passes=5, epoch=3),
        also("it ended after 4 steps, and the rate rises again", severity="warning", passes=5, epoch=None),
    ],
)
def _(calls=16, updates=16, epoch=4, passes=4, ended=True):
    return scheduled(calls=calls, updates=updates, horizon=4, epoch=epoch, passes=passes, turns=True, ended=ended)


@rule(
    "scheduler-at-wrong-rate",
    "CosineAnnealingLR: 6 steps over 40 updates; it ended after 4 steps, and the rate rises again",
    "train.py:6",
    limits={"calls": Limit(8, 7, (6, 30))},
)
def _(calls=6):
    return scheduled(calls=calls, updates=40, horizon=4, turns=True)


@rule(
    "scheduler-at-wrong-rate",
    "stepped per update, it ends after 5, within the first pass of 20 updates",
    "train.py:6",
    severity="error",
    spared=[but(horizon=40), but(kind="MultiStepLR", passes=1),
            but(calls=4, updates=4, kind="LinearLR", rates=(0.0, 0.1)),
            but(horizon=12, calls=4, updates=4)],
    also=[
        also("it ends after 5, within the first pass", kind="MultiStepLR"),
        also("it ended after 20 steps", severity="warning", horizon=20),
        also("it ends after 5", at="CosineAnnealingLR", where=""),
        also("it ends after 5", passes=1),
        also("it ends after 5", calls=4, updates=4, kind="LinearLR", rates=(0.1, 0.0)),
        also("it ends after 5", calls=4, updates=4),
        also("it ends after 12", calls=20, updates=20, horizon=12, ended=True),
    ],
)  # fmt: skip
def _(horizon=5, **fields):
    return scheduled(**{"calls": 40, "updates": 40, "epoch": 20, "passes": 2, "horizon": horizon, **fields})


@rule(
    "scheduler-at-wrong-rate",
    "stepped per update, one pass of 20 updates leaves 5e-04 of the rate",
    "train.py:6",
    severity="error",
    spared=[but(by_hand=True), but(calls=30), but(updates=1), but(left=None)],
    limits={"left": Limit(1e-3, 9.99e-4, (0.0, 1.0))},
)
def _(left=5e-4, calls=40, updates=40, by_hand=False):
    return scheduled(
        kind="ExponentialLR", calls=calls, updates=updates, epoch=20, share_after_epoch=left, by_hand=by_hand
    )


@rule(
    "scheduler-at-wrong-rate",
    "4 steps came between one update and the next",
    "train.py:6",
    spared=[but(ended=True, horizon=40, micro_batches=4)],
    also=[
        also("4 steps came between", ended=True, horizon=50, micro_batches=4),
        also("4 steps came between", ended=True, horizon=40, micro_batches=2),
        also("4 steps came between", horizon=40, micro_batches=4),
    ],
    limits={"times": Limit(1, 2)},
)
def _(times=4, ended=False, horizon=None, micro_batches=1):
    return scheduled(
        micro_batches, kind="StepLR", calls=40, updates=10, between_updates=times, horizon=horizon, ended=ended
    )


@rule(
    "scheduler-at-wrong-rate",
    "its horizon of 100 is the number of updates",
    "train.py:6",
    spared=[but(horizon=120), but(ended=False)],
    limits={"calls": Limit(50, 49, (1, 100))},
)
def _(calls=5, horizon=100, ended=True):
    return scheduled(calls=calls, updates=100, horizon=horizon, ended=ended)


@rule(
    "scheduler-at-wrong-rate",
    "it ended after 20 steps",
    "train.py:6",
    spared=[but(kind="MultiStepLR")],
    limits={"calls": Limit(30, 31), "updates": Limit(3, 4)},
)
def _(calls=40, updates=40, kind="StepLR"):
    return scheduled(kind=kind, calls=calls, updates=updates, horizon=20)


@rule(
    "scheduler-at-wrong-rate",
    "5 updates had less than 0.001 of the highest rate",
    "train.py:6",
    spared=[but(by_hand=True, low=1e-4), but(calls=4), but(high=2)],
    also=[
        also("5 updates had less than 0.001", by_hand=True),
        also("5 updates had less than 0.001", by_hand=True, low=1e-4, between=(0.3,)),
    ],
    limits={"spent": Limit(4, 5), "low": Limit(1e-3, 9.99e-4, (0.0, 1.0))},
)
def _(spent=5, low=0.0, calls=8, high=8, between=(), by_hand=False):
    rates = (1.0,) * high + between + (low,) * spent
    return scheduled(calls=calls, updates=8, rates=rates, by_hand=by_hand)


@rule(
    "scheduler-at-wrong-rate",
    "it ended after 10 of 40 updates of 4 micro-batches each",
    "train.py:6",
    spared=[but(ended=False), but(micro_batches=1), but(fall=20), but(low=0.6), but(at_once=True), but(bump=0.5)],
)
def _(fall=10, low=0.1, at_once=False, bump=0.0, ended=True, micro_batches=4):
    rates = [1.0 if at_once and n < fall else max(1 - (1 - low) * n / fall, low) for n in range(40)]
    rates[5] += bump
    return scheduled(micro_batches, calls=40, updates=40, rates=tuple(rates), ended=ended)


@rule(
    "scheduler-at-wrong-rate",
    "stepped once per pass of 10 updates, it would need 40 passes to end",
    "train.py:6",
    spared=[but(ended=True), but(epoch=2), but(horizon=41), but(horizon=10)],
    limits={"calls": Limit(3, 2, (1, 50))},
)
def _(calls=2, horizon=40, epoch=10, ended=False):
    return scheduled(calls=calls, updates=20, horizon=horizon, epoch=epoch, ended=ended)


@rule(
    "scheduler-at-wrong-rate",
    "the run has ended, but the schedule needs 1,000 steps",
    "train.py:6",
    spared=[but(ended=False), but(updates=12)],
    limits={"horizon": Limit(999, 1000, (20, 10**6)), "updates": Limit(7, 8, (2, 11))},
)
def _(horizon=1000, updates=10, ended=True):
    return scheduled(calls=10, updates=updates, horizon=horizon, ended=ended)


@rule(
    "scheduler-at-wrong-rate",
    "the schedule's 40 steps count those of all 4 ranks",
    "train.py:6",
    spared=[but(count=1), but(count=3), but(ended=False), but(calls=7, horizon=28)],
    limits={"horizon": Limit(43, 42, (39, 80))},
)
def _(horizon=40, calls=10, count=4, ended=True):
    return scheduled(seen=ranks(count=count), calls=calls, updates=calls, horizon=horizon, ended=ended)


def ordered(later=(), passes=1, **fields):
    """A schedule; those made after it, as calls, updates and number of the optimizer; the loader of the loop."""
    after = [schedule(calls=calls, updates=made, optimizer=number) for calls, made, number in later]
    loaders = (loader(role="evaluation", passes=9), loader(passes=passes))
    return UpdateFacts(schedules=(schedule(**fields), *after)), SampleFacts(loaders=loaders)


@rule(
    "scheduler-out-of-order",
    "CosineAnnealingLR: its optimizer made no update; another one made 2",
    "train.py:6",
    spared=[but(updates=1)],
    also=[
        also("its optimizer made no update", later=((4, 4, 1),)),
        also("its optimizer made no update", at="CosineAnnealingLR", where=""),
    ],
    limits={"others": Limit(1, 2)},
)
def _(updates=0, others=2, later=(), **fields):
    return ordered(later, updates=updates, others_updated=others, optimizer=0, **fields)


@rule(
    "scheduler-out-of-order",
    "it was never stepped, nor was its optimizer; another one made 2 updates",
    "train.py:6",
    spared=[but(replaced=False), but(ended=False), but(later=((4, 4, 1),))],
    also=[
        also("it was never stepped, nor was", later=((4, 4, -1),)),
        also("it was never stepped, nor was", later=((4, 0, 1),)),
        also("it was never stepped, nor was", later=((0, 2, 1),)),
    ],
)
def _(replaced=True, ended=True, later=()):
    return ordered(later, calls=0, updates=0, others_updated=2, replaced=replaced, ended=ended)


@rule(
    "scheduler-out-of-order",
    "2 of its steps came while another optimizer updated its optimizer's parameters",
    "train.py:6",
    spared=[but(replaced=False)],
    limits={"idle": Limit(1, 2)},
)
def _(idle=2, replaced=True):
    return ordered(idle_calls=idle, replaced=replaced)


@rule(
    "scheduler-out-of-order",
    "its first step came before the first update",
    "train.py:6",
    spared=[but(early=False)],
    limits={"updates": Limit(1, 2), "calls": Limit(1, 2)},
)
def _(early=True, updates=2, calls=2):
    return ordered(before_first_update=early, updates=updates, calls=calls)


@rule(
    "scheduler-out-of-order",
    "it was never stepped in 3 updates",
    "train.py:6",
    spared=[but(ended=False), but(rates=(0.1, 0.05)), but(calls=1), but(rates=(0.1, 0.05), later=((4, 4, 1),))],
    also=[
        also("it was never stepped in 3 updates", ended=False, passes=2),
        also("it was never stepped in 3 updates", rates=(0.1, 0.05), later=((4, 4, 0),)),
    ],
    limits={"updates": Limit(2, 3)},
)
def _(updates=3, calls=0, ended=True, rates=(0.1, 0.1), passes=1, later=()):
    return ordered(later, passes=passes, calls=calls, updates=updates, ended=ended, rates=rates, optimizer=0)


@rule(
    "scheduler-out-of-order",
    "neither it nor its optimizer made a step; another one made 3",
    "train.py:6",
    spared=[but(ended=False)],
    limits={"others": Limit(2, 3)},
)
def _(others=3, ended=True):
    return ordered(calls=0, updates=0, others_updated=others, ended=ended)
