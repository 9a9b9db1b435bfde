"""What `watch --data` says of a script: both parts side by side, what they share, and linear fits."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from surefoot.records.codec import from_json, to_json
from surefoot.records.splits import TARGET, SplitProfile
from surefoot.records.watched import Watched
from surefoot.reports.console import as_text
from surefoot.reports.splits import lines, sentences, splits_section, splits_text
from surefoot.watch import watch_call
from tests.checks.programs import mlp, numbers, sgd

ROWS, HELD = 128, 64


def made(rows, seed, *, exchanged=False):
    x = numbers(rows, 4, seed=seed)
    return x, (x.sum(1) > 0).long() ^ int(exchanged)


def profiled(train, held, *, loaders=True, also=None, epochs=2, loss=nn.functional.cross_entropy) -> SplitProfile:
    """The profile of a training on some arrays that is measured on others."""

    def batches(arrays):
        if loaders:
            return DataLoader(TensorDataset(*arrays), 32)
        return list(zip(*(each.split(32) for each in arrays), strict=True))

    def run():
        model = mlp()
        optimizer = sgd(model)
        for _ in range(epochs):
            for x, y in batches(train):
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                for arrays in (held, *([] if also is None else [also])):
                    for x, y in batches(arrays):
                        loss(model(x), y)

    seen = watch_call(run, name="train.py", data=True)
    assert seen.data is not None
    assert from_json(Watched, to_json(seen)) == seen
    return seen.data


def of(profile, name, part):
    (column,) = [each for each in profile.columns if (each.name, each.part) == (name, part)]
    return column


@pytest.mark.parametrize("loaders", [True, False])
def test_rows_and_targets_of_both_parts_are_seen_through_loaders_and_arrays(loaders):
    train, held = made(ROWS, 0), made(HELD, 1)
    profile = profiled(train, held, loaders=loaders)
    assert {each.part: (each.seen, each.kept) for each in profile.rows} == {
        "training": (2 * ROWS, ROWS),
        "validation": (2 * HELD, HELD),
    }
    assert of(profile, "input", "training").mean == pytest.approx(train[0].mean().item(), abs=1e-5)
    assert of(profile, "input", "both").highest == pytest.approx(torch.cat([train[0], held[0]]).max().item())
    assert of(profile, TARGET, "validation").labels["1"] == pytest.approx(held[1].float().mean().item())
    assert (profile.shared, profile.disagrees) == (0, False)
    assert all(each.across > 0.8 for each in profile.fits)


def test_rows_in_both_parts_are_counted_and_those_with_another_target():
    (x, y), (held, answers) = made(ROWS, 0), made(HELD, 1)
    held[:5], answers[:5] = x[:5], y[:5]
    answers[0] = 1 - answers[0]
    profile = profiled((x, y), (held, answers))
    assert (profile.shared, profile.shared_with_other_target) == (5, 1)
    assert "In both parts: 5 of 64 different validation rows, 1 of them with another target." in sentences(profile)


def test_a_target_that_means_something_else_in_validation_is_told():
    profile = profiled(made(ROWS, 0), made(HELD, 1, exchanged=True))
    assert profile.disagrees
    assert [each.across < 0.3 for each in profile.fits] == [True, True]
    assert any("does the target mean the same" in each for each in sentences(profile))


def test_measuring_the_training_data_as_well_is_no_validation():
    train = made(ROWS, 0)
    profile = profiled(train, made(HELD, 1), also=train)
    assert {each.part: each.seen for each in profile.rows} == {"training": 2 * ROWS, "validation": 2 * HELD}
    assert profile.shared == 0


def test_a_value_that_repeats_is_shown_with_its_share():
    x, y = made(ROWS, 0)
    x[:, 2] = 0
    profile = profiled((x, y), made(HELD, 1))
    column = of(profile, "input", "training")
    assert (column.usual, column.usual_share) == (0.0, 0.25)
    assert next(each for each in lines(profile) if "most often" in each[0])[:2] == ("input most often", "0 (25%)")


def test_numbers_as_targets_are_scored_by_r2():
    def with_numbers(rows, seed):
        x = numbers(rows, 4, seed=seed)
        return x, x.sum(1, keepdim=True).expand(-1, 2) + 0.25

    profile = profiled(with_numbers(ROWS, 0), with_numbers(HELD, 1), loss=nn.functional.mse_loss)
    assert profile.score == "R2"
    assert min(each.across for each in profile.fits) > 0.9


def test_the_table_fits_into_80_columns_and_on_a_page():
    x, y = made(ROWS, 0)
    profile = profiled((1e-9 * x, y), made(HELD, 1))
    text = as_text(splits_text(profile), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "rows seen" in text
    assert "different rows kept" in splits_section(profile)
    assert splits_section(None) == ""


def test_without_validation_it_says_so():
    profile = profiled(made(ROWS, 0), made(0, 1), loaders=False)
    assert "No row of validation was seen: the model did not run without gradients." in sentences(profile)
    assert profile.fits == ()


def test_only_so_many_rows_are_kept(monkeypatch):
    monkeypatch.setattr("surefoot.meters.splits.MOST_ROWS", 64)
    profile = profiled(made(ROWS, 0), made(HELD, 1))
    (training,) = [each for each in profile.rows if each.part == "training"]
    assert (training.seen, training.kept) == (2 * ROWS, 64)


def test_it_changes_no_number_and_nothing_is_kept_without_being_asked():
    assert watch_call(lambda: None, name="train.py").data is None
