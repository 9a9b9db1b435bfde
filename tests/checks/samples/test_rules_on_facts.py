"""The rules of samples on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.samples import Overlap, Parted, SampleFacts, Scaled, ToldBy
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import forward, inputs, loader, loss, optimizing, samples, shown, updates

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


# ------------------------------------------------------------------------------------------- what a probe finds


@rule(
    "changing-samples",
    "reading one sample a few times changed Images.pixels",
    "Images",
    severity="error",
    spared=[but(attribute="")],
)
def _(attribute="pixels"):
    return SampleFacts(samples=(samples(changed_by_reading=attribute),))


@rule(
    "same-randomness-every-epoch",
    "reading Images drew the same random numbers in two epochs",
    "Images",
    severity="error",
    spared=[but(alike=False)],
)
def _(alike=True):
    return SampleFacts(samples=(samples(alike_epochs=alike),))


@rule(
    "shared-worker-randomness",
    "for the same sample of Images, two workers drew the same random numbers",
    "Images",
    severity="error",
    spared=[but(alike=False)],
)
def _(alike=True):
    return SampleFacts(samples=(samples(alike_workers=alike),))


@rule(
    "unsharded-stream",
    "two workers reading Lines yielded the same samples",
    "Lines",
    severity="error",
    spared=[but(whole=False)],
    also=[also("two workers reading Images", at="Images", whole=False, told=True)],
)
def _(whole=True, told=False, role="training"):
    stream = samples(where="Lines", whole_stream=whole)
    return SampleFacts(samples=(stream,), loaders=(loader(told_twice=told, role=role),))


@rule(
    "unsharded-stream",
    "two workers reading Images yielded the same samples",
    "Images",
    severity="error",
    spared=[but(role="evaluation"), but(told=False)],
)
def _(told=True, role="training"):
    return SampleFacts(loaders=(loader(told_twice=told, role=role),))


@rule(
    "labels-of-other-samples",
    "2 of 8 samples had a different label when they were read again",
    "Images",
    limits={"redrawn": Limit(1, 2, (0, 8))},
)
def _(redrawn=2):
    return SampleFacts(samples=(samples(redrawn_labels=redrawn),))


@rule(
    "labels-of-other-samples",
    "images are rotated or flipped, but the maps of the same size that come with them are not",
    "Images",
    spared=[but(turned_alone=False), but(turned_alone=False, labels_in_order=True, reorders=False)],
    also=[
        also("samples are in one order and their labels in another", turned_alone=False, collated_apart=True),
        also("labels depend on the sample before their own", turned_alone=False, label_shift=1),
        also("labels depend on the sample after their own", turned_alone=False, label_shift=-1),
        also("either labels or inputs are sorted", turned_alone=False, labels_in_order=True),
        also("but not at all in training", turned_alone=False, unlike_evaluation=True),
    ],
)
def _(reorders=True, **fields):
    return SampleFacts(samples=(samples(**{"turned_alone": True, **fields}),), reorders=reorders)


@rule(
    "labels-of-other-samples",
    "`y` is sorted, `x` is not",
    "train.py:4",
    spared=[but(apart=0), but(told_by_inputs=True)],
    also=[also("rows 0 had targets of rows 5", at="train.py:8", parted=1)],
)
def _(apart=1, parted=0, told_by_inputs=False):
    return SampleFacts(
        samples=(samples(told_by_inputs=told_by_inputs),),
        parted=(Parted("train.py:8", "rows 0 had targets of rows 5"),) * parted,
        ordered_apart=(Parted("train.py:4", "`y` is sorted, `x` is not"),) * apart,
    )


# ------------------------------------------------------------------------------------------- evaluation samples


@rule(
    "augmented-evaluation-data",
    "evaluation reads Images like training does, and a sample changed when it was read again",
    "Images",
    spared=[but(random=False)],
)
def _(random=True):
    return SampleFacts(samples=(samples(random_in_evaluation=random),))


@rule(
    "augmented-evaluation-data",
    "the first batch of Images entered the model with different values in another pass",
    "Images",
    spared=[but(role="training"), but(random_inputs=False), but(counts=()), but(valid=7), but(third=6)],
)
def _(role="evaluation", random_inputs=True, counts=(4, 4), valid=8, third=8):
    sizes = ((8, valid), (7, 7), (third, third))
    rows = tuple(loss(targets=targets, valid=least, counts=counts) for targets, least in sizes)
    return LossFacts(losses=rows), SampleFacts(loaders=(loader(role=role, random_inputs=random_inputs),))


@rule(
    "evaluation-samples-in-training",
    "50% of the evaluation samples are also training samples",
    "Images",
    limits={"share": Limit(0.0099, 0.01, (0.0, 1.0))},
)
def _(share=0.5):
    return SampleFacts(samples=(samples(shared_with_evaluation=share),))


@rule(
    "evaluation-samples-in-training",
    "20 of 200 evaluated samples had been trained on",
    "Net",
    spared=[but(names=True), but(names=True, shared=40, distinct=80), but(free=6), but(update=0)],
    also=[
        also("80 of 200 evaluated samples", names=True, shared=40),
        also("20 of 200 evaluated samples", distinct=80),
        also("20 of 200 evaluated samples", others=("A", "B", "C", "D", "E", "F", "G")),
    ],
    limits={"shared": Limit(4, 5, (0, 100)), "made": Limit(5, 6)},
)
def _(shared=10, free=0, made=12, update=1, others=(), **fields):
    rows = [shown(shared=shared, update=update and update + n, **fields) for n in range(2)]
    rows += [shown(shared=0, samples=400, update=update) for _ in range(free)]
    rows += [shown(model="Other", update=1)] * 6
    rows += [shown(model=other, shared=shared) for other in others]
    return LoopFacts(updates=updates(made)), SampleFacts(shown=tuple(rows))


@rule(
    "evaluation-samples-in-training",
    "4 of 8 evaluated samples had been trained on",
    "Net",
    limits={"shared": Limit(3, 4, (0, 8))},
)
def _(shared=4):
    return LoopFacts(updates=updates(12)), SampleFacts(shown=(shown(samples=8, shared=shared),))


@rule(
    "evaluation-samples-in-training",
    "6 of 440 evaluated samples had been trained on",
    "Net",
    spared=[but(earlier=0)],
)
def _(earlier=3):
    """What is measured once, after training, is judged apart from the evaluations before it."""
    rows = [shown(update=1 + n, samples=20, shared=earlier) for n in range(2)] + [
        shown(update=3, samples=400, shared=0)
    ]
    return LoopFacts(updates=updates(12)), SampleFacts(shown=tuple(rows))


@rule(
    "evaluation-samples-in-training",
    "120 of 320 evaluated samples had been trained on",
    "Net",
    spared=[but(names=True), but(rounds=1), but(last=19), but(held_out=10), but(size=20, border=3)],
    also=[also("120 of 320", turned=True), also("160 of 360", unfinished=True)],
    limits={"made": Limit(5, 6), "border": (Limit(5, 6, (0, 28)), Limit(29, 28, (6, 40)))},
)  # fmt: skip
def _(
    made=12, rounds=2, size=40, border=20, last=None, held_out=0, rest=1, turned=False, unfinished=False, names=False
):
    """Evaluations that begin with training samples and end with others, with one forward of both in between."""
    rows = []
    for number in range(rounds):
        mixed = last if last is not None and number == rounds - 1 else border
        parts = [size, mixed, *[held_out, 0] * rest][:: -1 if turned else 1]
        rows += [shown(update=1 + number, samples=size, shared=part, names=names) for part in parts]
    rows += [shown(update=9, samples=size, shared=size)] * unfinished
    return LoopFacts(updates=updates(made)), SampleFacts(shown=tuple(rows))


@rule(
    "evaluation-samples-in-training",
    "6 of 20 evaluated windows end inside a window that was trained on",
    "Net",
    spared=[but(update=0)],
    limits={"shared": Limit(5, 6, (0, 20)), "made": Limit(2, 3)},
)
def _(shared=6, windows=20, update=1, made=3):
    return LoopFacts(updates=updates(made)), SampleFacts(
        overlaps=(Overlap("Net", update, windows, shared), Overlap("Other", 1, 400, 0))
    )


@rule(
    "evaluation-samples-in-training",
    "6 of 12 evaluated windows end inside a window",
    "Net",
    limits={"windows": Limit(11, 12, (6, 20))},
)
def _(windows=12):
    return LoopFacts(updates=updates(3)), SampleFacts(overlaps=(Overlap("Net", 1, windows, 6),))


@rule(
    "scaled-before-split",
    "as a whole, 1000 rows have mean 0 and deviation 1; training took some of them, and 200 others were evaluated",
    "the data",
    spared=[but(count=0)],
)
def _(count=1):
    return SampleFacts(scaled_together=(Scaled(1000, "mean 0 and deviation 1", 200),) * count)


@rule(
    "target-among-inputs",
    "column 3 equals the target in all 100 samples",
    "train.py:7",
    spared=[but(count=0)],
    also=[
        also("column 3 tells the target without the other inputs", how="tells"),
        also("column 3 equals the target", at="the recipe's data", where=""),
    ],
)
def _(count=1, how="equals", where="train.py:7"):
    return SampleFacts(told_by=(ToldBy(where, "column 3", how, 100),) * count)


# ------------------------------------------------------------------------------------------- orders and repetition


@rule(
    "repeated-batch",
    "all updates use the same batch out of 1000 samples",
    "the training loop",
    spared=[but(part_of=0), but(role="training")],
)
def _(part_of=1000, role="unknown"):
    return SampleFacts(part_of=part_of, loaders=(loader(role=role),))


@rule(
    "repeated-batch",
    "one batch of the loader was used in 8 updates in a row; the loader has 10 batches",
    "Images",
    spared=[but(worked_through=True), but(role="evaluation"), but(batches=1)],
    also=[also("the loader has more batches", batches=None), also("the loader has 10 batches", others=1)],
    limits={"uses": Limit(7, 8)},
)
def _(uses=8, others=0, **fields):
    before = (loader(kind="Text", batches=99, updates_of_a_batch=1),) * others
    return SampleFacts(loaders=(*before, loader(updates_of_a_batch=uses, **fields)))


@rule(
    "repeated-batch",
    "Net saw the same inputs in 4 updates in a row; the loader has 10 batches",
    "Net",
    spared=[but(batch=0), but(trained=False), but(updates_of_a_batch=4, worked_through=True), but(loaders=0),
            but(count=3), but(count=3, rest=0), but(count=2, rest=0, ended=True), but(count=2, passes=3),
            but(count=3, ended=True)],
    also=[
        also("in 4 updates in a row", trained=False, backpropagated=True),
        also("in 3 updates in a row", count=3, passes=3),
        also("in 3 updates in a row", count=3, rest=0, ended=True),
        also("in 4 updates in a row", updates_of_a_batch=3, worked_through=True),
        also("in 4 updates in a row", updates_of_a_batch=4),
        also("Net saw the same inputs", others=("A", "B", "C", "D", "E", "F", "G")),
    ],
    limits={"count": Limit(3, 4, (0, 9))},
)  # fmt: skip
def _(
    count=4, rest=2, batch=7, ended=False, loaders=1, others=(), trained=True, backpropagated=False, passes=2, **fields
):
    usual = {"trained": trained, "backpropagated": backpropagated}
    calls = [forward(update=n, batch=batch, **usual) for n in range(count)]
    calls += [forward(update=count + n, batch=100 + n if batch else 0, **usual) for n in range(rest)]
    calls += [forward(model=other, update=n, batch=batch, **usual) for other in others for n in range(count)]
    loop = LoopFacts(forwards=tuple(calls), ended=ended)
    return loop, SampleFacts(loaders=(loader(passes=passes, **fields),) * loaders)


@rule(
    "reseeded-steps",
    "2 of 4 forward calls started with the random state of the step before",
    "Net",
    spared=[but(trained=False)],
    limits={"again": Limit(1, 2)},
)
def _(again=2, trained=True):
    calls = (
        forward(model="Other", trained=True),
        forward(trained=True),
        *[forward(reseeded=True, trained=trained)] * again,
    )
    return LoopFacts(forwards=calls), SampleFacts()


@rule(
    "reseeded-steps",
    "5 of 6 updates drew the same random numbers as the update before",
    "Net",
    also=[also("5 of 6 updates", again=1), also("5 of 6 updates", at="the loop", modules=0)],
    limits={"redrawn": Limit(1, 2)},
)
def _(redrawn=5, again=0, modules=1):
    """A loop of tensors alone has no forward of a module."""
    calls = (*[forward()] * modules, *[forward(reseeded=True, trained=True)] * again)
    return LoopFacts(forwards=calls, updates=updates(6)), SampleFacts(reseeded_updates=redrawn)


@rule(
    "restarted-workers",
    "the loader of Images started 4 workers 3 times",
    "the loader of Images",
    severity="info",
    spared=[but(workers=0), but(keeps_workers=True)],
    limits={"passes": Limit(2, 3)},
)
def _(workers=4, keeps_workers=False, passes=3):
    return SampleFacts(loaders=(loader(workers=workers, keeps_workers=keeps_workers, passes=passes),))


@rule(
    "same-order-every-epoch",
    "2 passes over Images had the same order: set_epoch was never called",
    "the loader of Images",
    spared=[but(same_epoch=False), but(role="evaluation"), but(batches=1)],
    also=[
        also("the first batch always held the same samples", same_epoch=False, same_first_batch=True),
        also("the same order: made anew with one seed", same_epoch=False, order_again="made anew with one seed"),
        also("set_epoch was never called", order_again="made anew with one seed"),
        also("set_epoch was never called", batches=None),
    ],
)
def _(**fields):
    return SampleFacts(loaders=(loader(**{"same_epoch": True, **fields}),))


@rule(
    "same-order-every-epoch",
    "all passes go through 1000 rows in the same order, which was shuffled once",
    "the training loop",
    spared=[but(rows=0), but(role="training")],
)
def _(rows=1000, role="evaluation"):
    return SampleFacts(shuffled_once=rows, loaders=(loader(role=role),))


@rule(
    "sorted-training-data",
    "Images is read in order, and 3 classes come one after another",
    "Images",
    spared=[but(classes=0)],
)
def _(classes=3):
    return SampleFacts(samples=(samples(sorted_labels=classes),))


@rule(
    "sorted-training-data",
    "6 batches hold hardly more than one class each, one class after another",
    "train.py:7",
    spared=[but(optimizers=2), but(second=(8, 0)), but(turns=True), but(mixed=(4, 4)), but(mixed=(8, 0, 0)),
            but(elsewhere=True)],
    also=[also("6 batches hold hardly more than one class each", idle=1)],
    limits={"count": Limit(2, 3, (1, 9)), "size": Limit(7, 8)},
)  # fmt: skip
def _(count=3, size=8, second=(0, 1), turns=False, mixed=None, optimizers=1, idle=0, elsewhere=False):
    """Batches of one class, then as many of another."""
    one, other = (size, 0), tuple(size * min(each, 1) for each in second)
    counts = [one, other] * count if turns else [one] * count + [other] * count
    counts[0] = mixed or counts[0]
    places = ("train.py:7", "train.py:20") if elsewhere else ("train.py:7",) * 2
    rows = tuple(loss(counts=each, where=places[n % 2]) for n, each in enumerate(counts))
    held = (optimizing(),) * optimizers + (optimizing(updates=0),) * idle
    return LoopFacts(optimizers=held), LossFacts(losses=(*rows, loss(function="mse_loss")))


@rule(
    "sorted-training-data",
    "the targets of 12 batches in a row only rise or only fall, and no input does",
    "train.py:7",
    spared=[but(lines=())],
)
def _(lines=(("train.py:7", 12),)):
    return SampleFacts(rising_targets=lines)


@rule(
    "unseeded-generator",
    "torch is seeded; numpy.random draws numbers and is never seeded",
    "numpy.random",
    severity="info",
    spared=[but(names=())],
)
def _(names=("numpy.random",)):
    return SampleFacts(unseeded_generators=names)


# ------------------------------------------------------------------------------------------- the size of inputs


@rule(
    "unscaled-inputs",
    "the inputs of conv lie between -2 and 2, with a root mean square of 30",
    "conv",
    limits={"size": Limit(20.0, 20.01, (0.01, 999.0))},
)
def _(size=30.0):
    return SampleFacts(inputs=(inputs(size=size, image=False),))


@rule(
    "unscaled-inputs",
    "too small for a layer to tell samples apart; layers are initialised for inputs near one; subtract the mean",
    "conv",
    spared=[but(size=0.0)],
    limits={"size": Limit(1e-3, 9.99e-4, (1e-9, 1.0))},
)
def _(size=5e-4):
    return SampleFacts(inputs=(inputs(size=size, image=False),))


@rule(
    "unscaled-inputs",
    "as if divided by 255 twice before they were normalised",
    "conv",
    spared=[but(image=False), but(shape=(8, 3072)), but(size=0.01), but(highest=-2.0)],
    limits={"highest": Limit(-1.98, -1.981, (-1.999, 2.0))},
)
def _(highest=-1.99, **fields):
    return SampleFacts(inputs=(inputs(lowest=-2.0, highest=highest, deviation=0.001, **fields),))


@rule(
    "unscaled-inputs",
    "with a root mean square of 4, as if normalised twice",
    "conv",
    spared=[but(image=False), but(shape=(8, 3072)), but(lowest=0.0), but(deviation=2.0)],
    limits={"size": Limit(3.5, 3.51, (1.5, 5.0))},
)
def _(size=4.0, lowest=-9.0, deviation=4.0, **fields):
    return SampleFacts(inputs=(inputs(size=size, lowest=lowest, highest=9.0, deviation=deviation, **fields),))


@rule(
    "unscaled-inputs",
    "lie between -3 and 1, with a root mean square of 1, as if normalised twice",
    "conv",
    spared=[but(lowest=-2.9), but(highest=1.1), but(highest=-1.0), but(image=False)],
)
def _(lowest=-3.0, highest=1.0, image=True):
    return SampleFacts(inputs=(inputs(lowest=lowest, highest=highest, image=image),))


@rule(
    "unscaled-inputs",
    "lie between 0 and 15, with a root mean square of 12; layers are initialised for inputs near one; divide bytes",
    "conv",
    spared=[but(image=False), but(shape=(8, 3072)), but(lowest=-0.1)],
    limits={"size": Limit(10.0, 10.01, (1.0, 20.0))},
)
def _(size=12.0, lowest=0.0, **fields):
    return SampleFacts(inputs=(inputs(size=size, lowest=lowest, highest=15.0, deviation=1.0, **fields),))


@rule(
    "unscaled-inputs",
    "lie between 0 and 255, in whole numbers",
    "conv",
    spared=[but(whole=False), but(image=False), but(shape=(8,)), but(highest=256.0)],
    limits={"highest": Limit(127.0, 128.0, (2.0, 255.0))},
)
def _(highest=255.0, **fields):
    few = {"whole": True, "size": 9.0, "shape": (8, 3072)}
    return SampleFacts(inputs=(inputs(**{"lowest": 0.0, "highest": highest, **few, **fields}),))


@rule(
    "unscaled-inputs",
    "as if divided by 255 twice",
    "conv",
    spared=[but(image=False), but(shape=(8, 3072)), but(highest=0.0)],
    limits={"highest": Limit(1 / 127, 1 / 128, (1e-6, 1.0))},
)
def _(highest=0.004, **fields):
    return SampleFacts(inputs=(inputs(lowest=0.0, highest=highest, size=0.002, **fields),))


@rule(
    "unscaled-inputs",
    "the inputs of conv in evaluation lie between 0 and 1, and were normalised in training",
    "conv",
    spared=[but(evaluated=False), but(image=False), but(shape=(8, 3072)), but(model="Other"), but(lowest=-0.1),
            but(highest=1.1), but(trained=0), but(deviation=0.0)],
    limits={"rows": Limit(7, 8), "below": Limit(-0.3, -0.301, (-5.0, 0.0)),
            "spread": Limit(1.7, 1.71), "moved": Limit(0.2, 0.21)},
)  # fmt: skip
def _(rows=8, below=-2.0, spread=4.0, moved=2.0, trained=1, deviation=0.25, **fields):
    """Raw images of a mean of 0.5 in evaluation; in training, images of another mean and deviation."""
    usual = {"lowest": 0.0, "highest": 1.0, "mean": 0.5, "evaluated": True, "shape": (rows, 3, 32, 32)}
    raw = inputs(**{**usual, "size": 0.56, "deviation": deviation, **fields})
    normalised = inputs(lowest=below, deviation=0.25 * spread, mean=0.5 - 0.25 * moved)
    return SampleFacts(inputs=(*[normalised] * trained, raw))
