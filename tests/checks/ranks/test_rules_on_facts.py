"""The rules of ranks on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.ranks import RankFacts, SharedFile
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import backwards, loss, ranks

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
    "clipping-by-local-norm",
    "clipping measured norms from 1 to 2 on 2 ranks",
    "the gradient clipping",
    severity="error",
    spared=[but(norms=()), but(norms=(2.0,)), but(norms=None)],
    also=[also("from 1 to 2", severity="warning", by_hand=True)],
    limits={"high": Limit(1.001, 1.0011, (1.0, 10.0))},
)
def _(norms=(1.0,), high=2.0, by_hand=False):
    if norms is None:
        return RankFacts()
    return RankFacts(ranks=ranks(local_norms=(*norms, high) if norms == (1.0,) else norms, by_hand=by_hand))


@rule(
    "diverging-replicas",
    "after an update 1 parameter had other values on another of 2 ranks, for example body.weight",
    "body.weight",
    severity="error",
    spared=[but(diverged=())],
    also=[
        also("; the loop called the model inside DistributedDataParallel, not the wrapper", bypassed=True),
        also("; no gradient was exchanged in any update", never_synced=True),
        also("; gradients were exchanged, but not in the last micro-batch", last_unsynced=1.0),
    ],
)
def _(diverged=("body.weight",), **fields):
    return RankFacts(ranks=ranks(diverged=diverged, **fields))


@rule(
    "diverging-replicas",
    "gradients were exchanged, but not in the last micro-batch of an update",
    "DistributedDataParallel",
    severity="error",
    spared=[but(compared=True), but(bypassed=True), but(alone=True)],
    also=[also("every backward ran inside no_sync()", last_unsynced=0.0, never_synced=True)],
    limits={"last_unsynced": Limit(0.5, 0.51, (0.0, 1.0))},
)
def _(last_unsynced=1.0, alone=False, **fields):
    return RankFacts(ranks=None if alone else ranks(last_unsynced=last_unsynced, **fields))


def reduced(losses=(), **fields):
    """The gradients of two ranks in a loop with one backward per update."""
    return LoopFacts(backwards=backwards(2)), LossFacts(losses=losses), RankFacts(ranks=ranks(**fields))


@rule(
    "gradients-reduced-twice",
    "gradients of a model under DistributedDataParallel were reduced by hand: train.py:12",
    "train.py:12",
    severity="error",
    spared=[but(again=""), but(again="", alone=True)],
    also=[also("were reduced by hand", severity="warning", wrapped=False)],
)
def _(again="train.py:12", wrapped=True, alone=False):
    return (LoopFacts(), RankFacts()) if alone else reduced(reduced_again=again, wrapped=wrapped)


@rule(
    "gradients-reduced-twice",
    "updates used 2 times the mean of the gradients of 2 ranks",
    "the exchange of gradients",
    severity="error",
    spared=[but(second=1.0), but(first=1.0, second=1.0), but(updates=1), but(wrapped=False)],
    also=[also("updates used 0.5 times the mean", first=0.5, second=0.5)],
    limits={"second": Limit(2.03, 2.01, (1.99, 10.0)), "micro_batches": Limit(1.5, 1.49, (1.0, 8.0))},
)
def _(first=2.0, second=2.0, updates=2, wrapped=True, micro_batches=1.0):
    return reduced(ratios_to_mean=(first, second)[:updates], wrapped=wrapped, micro_batches=micro_batches)


@rule(
    "gradients-reduced-twice",
    "updates used 0.5 times the mean of the gradients of 2 ranks",
    "train.py:12",
    spared=[but(divided_again=""), but(scaled_by_count="train.py:7")],
    also=[also("updates used 0.5 times the mean", scaled_by_count="train.py:7", counts_all=True)],
)
def _(divided_again="train.py:12", **fields):
    return reduced(ratios_to_mean=(0.5, 0.5), wrapped=True, micro_batches=4.0, divided_again=divided_again, **fields)


@rule(
    "gradients-reduced-twice",
    "updates used 2 times the mean of the gradients of 2 ranks",
    "the exchange of gradients",
    spared=[but(mean_weight=None), but(mean_weight=1.0)],
)
def _(mean_weight=2.0):
    return reduced(ratios_to_mean=(1.0, 1.0), micro_batches=4.0, mean_weight=mean_weight)


@rule(
    "gradients-reduced-twice",
    "updates used 2 times the mean of the gradients of 2 ranks",
    "the exchange of gradients",
    spared=[but(weights=(1.0, 0.2)), but(weights=(0.5, 0.5)), but(reduction="none"), but(next_backward=0),
            but(weights=(2.0, 2.0), ratio=1.0)],
    also=[also("updates used 2 times the mean", weights=(2.0, 2.0), ratio=1.0, scaled_by_count="train.py:7")],
)  # fmt: skip
def _(weights=(1.0, 1.0), reduction="mean", next_backward=1, ratio=2.0, **fields):
    losses = (
        loss(weights=[weights[0]], backward=0, reduction=reduction),
        loss(weights=[weights[1]], backward=next_backward, reduction=reduction),
    )
    return reduced(losses, ratios_to_mean=(ratio, ratio), micro_batches=1.0, **fields)


@rule(
    "metric-of-one-rank",
    "each of 2 ranks evaluated its own samples, and no collective followed",
    "the evaluation",
    spared=[but(untold=False), but(alone=True)],
)
def _(untold=True, alone=False):
    return RankFacts(ranks=None if alone else ranks(untold_metrics=untold))


@rule(
    "same-randomness-on-all-ranks",
    "2 ranks started a forward that draws random numbers from the same random state",
    "the random seed",
    spared=[but(same=False), but(alone=True)],
)
def _(same=True, alone=False):
    return RankFacts(ranks=None if alone else ranks(same_randomness=same))


@rule(
    "shards-lost-in-saving",
    "2 of 4 ranks write model.pt",
    "save.py:3",
    spared=[but(files=0)],
    also=[
        also("2 of 4 ranks write model.pt", severity="error", shards=True),
        also("model.pt holds the shards of 1 of 4 ranks", severity="error", shards=True, writers=1),
    ],
)
def _(writers=2, shards=False, files=1):
    return RankFacts(shared_files=(SharedFile("model.pt", "save.py:3", writers, 4, shards),) * files)


@rule(
    "sync-in-every-micro-batch",
    "gradients were exchanged 4 times in every update",
    "DistributedDataParallel",
    spared=[but(alone=True)],
    limits={"micro_batches": Limit(1.89, 1.9, (1.0, 64.0)), "unsynced": Limit(0.11, 0.09, (0.0, 4.0))},
)
def _(micro_batches=4.0, unsynced=0.0, alone=False):
    seen = ranks(micro_batches=micro_batches, syncs_per_update=micro_batches - unsynced)
    return RankFacts(ranks=None if alone else seen)


@rule(
    "unequal-step-counts",
    "the loaders of 2 ranks have 4, 5 batches",
    "the training loader",
    severity="error",
    spared=[but(counts=(4, 4)), but(counts=()), but(alone=True)],
)
def _(counts=(4, 5), alone=False):
    return RankFacts(ranks=None if alone else ranks(batch_counts=counts))


@rule(
    "unsharded-data",
    "100% of the samples of one rank were also seen by another of 2",
    "the training loader",
    severity="error",
    spared=[but(alone=True)],
    limits={"same_samples": Limit(0.5, 0.51, (0.0, 1.0))},
)
def _(same_samples=1.0, alone=False):
    return RankFacts(ranks=None if alone else ranks(same_samples=same_samples))


@rule(
    "unsharded-data",
    "in every loss the 2 ranks had the same targets",
    "the training loader",
    severity="error",
    spared=[but(same=False)],
)
def _(same=True):
    return RankFacts(ranks=ranks(same_answers=same))


@rule(
    "unsharded-data",
    "50% of what one rank reads in a pass is also read by another of 2",
    "the training loader",
    limits={"same_places": Limit(0.1, 0.101, (0.0, 1.0))},
)
def _(same_places=0.5):
    return RankFacts(ranks=ranks(same_places=same_places))
