"""Verdicts on results by hand: each shows its finding, and the nearest results that are fine show none."""

import random
from dataclasses import replace

import pytest

from surefoot.debug.probe.order import Change, Line, Ran, Roles, Term
from surefoot.debug.probe.results import Results, metrics_of
from surefoot.debug.probe.verdicts.augmentation import augmentation
from surefoot.debug.probe.verdicts.evaluation import evaluation
from surefoot.debug.probe.verdicts.one_batch import one_batch
from surefoot.debug.probe.verdicts.pairs import pairs
from surefoot.debug.probe.verdicts.parts import parts, planned
from surefoot.debug.probe.verdicts.samples import samples
from surefoot.debug.probe.verdicts.seeds import seeds
from surefoot.debug.probe.verdicts.terms import terms

ROLES = Roles({"[0]": "input", "[1]": "target"}, {}, {"loader:[0]": (8, 6), "loader:[1]": (8,)}, (0,))
LOOK = Ran("look", 12, facts={"optimizers": 1}, roles=ROLES)


def printed(accuracy: float, loss: float = 1.0, **more: object) -> Ran:
    """A copy whose evaluation prints a loss of training, which no change of it touches, and an accuracy."""
    line = Line("epoch # loss # val_acc #", (9.0, loss, accuracy), "train.py:12")
    return Ran("copy", lines=(line,), outputs=("a", "b"), changed=1, **more)


def copies(value: float, chance: float = 0.25, spread: float = 0.02) -> tuple[tuple[Change, Ran], ...]:
    """Two controls with a value, and twenty permutations around what chance gives."""
    drawn = random.Random(0)
    controls = [(Change("none"), printed(value))] * 2
    null = [(Change("targets", seed=each), printed(round(drawn.gauss(chance, spread), 4))) for each in range(20)]
    return (*controls, *null)


def falling(last: float, *, first: float = 1.4, updates: int = 100, noise: float = 0.01) -> tuple[float, ...]:
    """Losses that fall to a value within a half of the updates."""
    drawn = random.Random(last)
    share = [max(0.0, 1 - 2 * each / updates) for each in range(updates)]
    return tuple(last + (first - last) * each + drawn.gauss(0, noise) for each in share)


def trained(last: float, **more: object) -> Ran:
    places = {"batch": "train.py:7", "call": "train.py:8", "loss": "train.py:9"}
    usual = {"updates": 100, "evaluations": (100,), "changed": 9, "batches": ("x", "y"), "places": places}
    return Ran("run", losses=falling(last), **{**usual, **more})


def results(*, value: float = 0.9, own: float = 0.2, permuted: float = 1.4, **more: object) -> Results:
    """Those of a clean script."""
    base = trained(own)
    return replace(Results(LOOK, base, copies(value), trained(own * 1.02), trained(permuted, evaluations=())), **more)


def said(verdict) -> str:
    return verdict.finding.check if verdict.finding is not None else verdict.experiment.outcome


def test_a_clean_script_gives_no_finding():
    assert [said(each(results())) for each in (evaluation, pairs, seeds)] == ["as expected"] * 3


def test_the_metric_is_found_by_what_permuted_targets_change():
    metric, *others = metrics_of(copies(0.9))
    assert not others
    assert (metric.label, metric.where, metric.better) == ("val_acc", "train.py:12", 1)
    assert metric.z > 10


def test_a_number_that_differs_between_equal_evaluations_is_no_metric():
    first, second, *rest = copies(0.9)
    assert not metrics_of((first, (second[0], printed(0.91)), *rest))


def test_a_metric_by_chance_is_found_if_training_learned():
    verdict = evaluation(results(value=0.26))
    assert said(verdict) == "evaluation-at-chance"
    assert verdict.finding.where == "train.py:12"
    assert "0.26" in verdict.finding.seen


def test_a_metric_by_chance_is_no_finding_if_nothing_shows_that_training_learned():
    assert said(evaluation(results(value=0.26, own=1.4))) == "unclear"
    assert said(evaluation(results(value=0.26, fixed=None))) == "unclear"


def test_a_metric_below_chance_is_found_by_its_name():
    assert said(evaluation(results(value=0.02))) == "metric-below-chance"
    assert said(evaluation(results(value=0.02, own=1.4))) == "unclear"


def test_no_evaluation_is_not_tried():
    assert said(evaluation(results(copies=()))) == "not tried"
    assert "recognised" in evaluation(replace(results(), base=trained(0.2, evaluations=()))).experiment.seen


@pytest.mark.parametrize(
    ("permuted", "value", "outcome"),
    [
        (1.4, 0.9, "as expected"),
        (0.2, 0.25, "nothing-learned-from-pairs"),
        (0.204, 0.25, "nothing-learned-from-pairs"),
        (0.215, 0.25, "as expected"),
        (0.2, 0.9, "nothing-learned-from-pairs"),  # a model that learned nothing may agree with them by chance
    ],
)
def test_pairs(permuted, value, outcome):
    assert said(pairs(results(permuted=permuted, value=value))) == outcome


@pytest.mark.parametrize(("value", "outcome"), [(0.9, "unclear"), (0.25, "nothing-learned-from-pairs")])
def test_a_training_that_learns_later_is_unclear(value, outcome):
    slow = replace(trained(1.4), losses=falling(1.4) + falling(0.2))
    assert said(pairs(results(base=slow, seed=None, own=1.4, value=value))) == outcome


def test_a_shift_names_wrong_pairs():
    shifted = {1: trained(0.02, evaluations=()), -1: trained(0.2, evaluations=())}
    verdict = pairs(results(permuted=0.2, value=0.25, shifted=shifted))
    assert "next sample" in verdict.finding.seen
    assert "shifted by one" in verdict.finding.seen


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"fixed": trained(0.2, batches=("x", "z"))}, "depend on the training"),
        ({"fixed": trained(0.2, changed=0)}, "no target"),
        ({"fixed": trained(0.2, error="ValueError: no")}, "ValueError: no"),
        ({"look": replace(LOOK, facts={"optimizers": 2})}, "two optimizers"),
        ({"fixed": Ran("run", losses=(1.0,) * 5, batches=("x", "y"), changed=5)}, "fewer than"),
    ],
)
def test_pairs_that_cannot_be_compared_are_not_tried(changed, reason):
    verdict = pairs(results(value=0.25, own=1.4, **changed))
    assert said(verdict) == "not tried"
    assert reason in verdict.experiment.seen


def shuffled(*unused: int, changed: int = 1) -> tuple[tuple[Change, Ran], ...]:
    """Copies with each of six columns shuffled; the outputs of some stay the same."""
    made = []
    for column in range(6):
        outputs = ("a", "b") if column in unused else ("a", "c")
        change = Change("part", path="[0]", dim=1, first=column, last=column + 1)
        made.append((change, replace(printed(0.9), outputs=outputs, changed=changed)))
    return (*copies(0.9), *made)


def test_a_part_that_no_output_uses_is_found():
    verdict = parts(results(copies=shuffled(3, 4)))
    assert said(verdict) == "unused-part-of-input"
    assert "2 of 6 places of dimension 1" in verdict.finding.seen
    assert "3 to 4" in verdict.finding.seen


def test_parts_that_are_used_or_did_not_change_are_no_finding():
    assert said(parts(results(copies=shuffled()))) == "as expected"
    assert said(parts(results(copies=shuffled(3, changed=0)))) == "not tried"


def test_an_input_that_the_evaluation_does_not_use_at_all_is_no_finding():
    assert said(parts(results(copies=shuffled(*range(6))))) == "unclear"


def test_an_evaluation_that_is_not_the_same_twice_tells_nothing_of_parts():
    first, (change, control), *rest = shuffled(3)
    other = replace(control, outputs=("a", "d"))
    assert said(parts(results(copies=(first, (change, other), *rest)))) == "not tried"


def test_planned_parts_are_single_places_or_quarters():
    assert [(each.first, each.last) for each in planned(LOOK)] == [(each, each + 1) for each in range(6)]
    roles = Roles({"[0]": "input"}, {}, {"loader:[0]": (8, 3, 32, 32)})
    cut = [(each.dim, each.first, each.last) for each in planned(replace(LOOK, roles=roles))]
    assert cut[:4] == [(1, 0, 1), (1, 1, 2), (1, 2, 3), (2, 0, 8)]
    assert len(cut) == 11


@pytest.mark.parametrize(
    ("mixed", "outcome"),
    [
        (("apart",), "as expected"),
        (("others", "MultiheadAttention", "the model (Net)"), "samples-mix"),
        (("batch statistics",), "not tried"),
        ((), "not tried"),
    ],
)
def test_samples(mixed, outcome):
    disturbed = (Change("sample"), replace(printed(0.9), mixed=mixed))
    verdict = samples(results(copies=(*copies(0.9), disturbed)))
    assert said(verdict) == outcome
    if verdict.finding is not None:
        assert "MultiheadAttention" in verdict.finding.seen


@pytest.mark.parametrize(
    ("loss", "metric", "outcome"),
    [
        (0.001, 0.9, "as expected"),
        (0.001, 0.26, "loss-and-metric-disagree"),
        (0.001, 0.0, "loss-and-metric-disagree"),
        (0.9, 0.26, "unclear"),  # the batch was not learned
    ],
)
def test_one_batch(loss, metric, outcome):
    found = results(one_batch=Ran("one", losses=falling(loss, noise=0)), one_batch_copies=copies(metric))
    assert said(one_batch(found)) == outcome


MOVES = {"optimizers": 1.0, "inputs_move": 1.0, "inputs_keep_values": 1.0, "targets_move": 0.0, "dense_targets": 1.0}


@pytest.mark.parametrize(
    ("facts", "frozen", "outcome"),
    [
        ({}, (0.02, 0.03), "target-stays-where-it-was"),
        ({}, (0.02, 0.15), "as expected"),
        ({"targets_move": 1.0}, (0.02, 0.03), "as expected"),
        ({"dense_targets": 0.0}, (0.02, 0.03), "not tried"),
        ({"inputs_move": 0.0}, (0.02, 0.03), "not tried"),
        ({"inputs_keep_values": 0.0}, (0.02, 0.03), "not tried"),
    ],
)
def test_augmentation(facts, frozen, outcome):
    look = replace(LOOK, facts={**MOVES, **facts})
    runs = tuple(trained(each) for each in frozen)
    assert said(augmentation(results(look=look, frozen=runs))) == outcome


def term(name: str, update: int, encoder: float, head: float = 0.0, along: float | None = 0.1) -> Term:
    length = (encoder**2 + head**2) ** 0.5
    return Term(name, f"train.py:{len(name)}", update, length, {"encoder": encoder, "head": head}, along)


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [
        ([term("mse", 2, 3, 4), term("kl", 2, 5), term("mse", 21, 3, 4), term("kl", 21, 5)], "as expected"),
        ([term("mse", 2, 3, 4), term("kl", 2, 0), term("mse", 21, 3, 4), term("kl", 21, 1)], "as expected"),  # later
        ([term("mse", 2, 3, 4), term("kl", 2, 0)], "as expected"),  # looked at once
        ([term("mse", 2, 0), term("kl", 2, 0), term("mse", 21, 0), term("kl", 21, 0)], "as expected"),  # none does
        (
            [term("mse", 2, 3, 4), term("kl", 2, 1e-7), term("mse", 21, 3, 4), term("kl", 21, 0)],
            "loss-term-without-effect",
        ),
        ([term("loss", 2, 3, 4), term("loss", 21, 3, 4)], "as expected"),
        ([], "not tried"),
    ],
)
def test_terms(measured, outcome):
    found = terms(results(base=trained(0.2, terms=tuple(measured))))
    assert said(found) == outcome
    if outcome == "loss-term-without-effect":
        assert "`kl`" in found.finding.seen
        assert "updates 2 and 21: no parameter got a gradient" in found.finding.seen
        assert found.finding.where == "train.py:2"


def test_terms_are_told_by_their_share_what_they_reach_and_what_they_pull_against():
    measured = (term("mse", 2, 3, 4, -0.5), term("kl", 2, 15, along=-0.5))
    found = terms(results(base=trained(0.2, terms=measured))).experiment
    told = "kl 0.75 (only encoder) (against the others: cosine -0.50), mse 0.25 (against the others: cosine -0.50)"
    assert found.seen == f"shares of the gradient: {told}"
    assert found.figures == {"mse: share": 0.25, "kl: share": 0.75}


def test_two_optimizers_have_losses_of_their_own():
    assert said(terms(results(look=replace(LOOK, facts={"optimizers": 2})))) == "not tried"
