"""One update on 1, 2 and 4 ranks, replicated, sharded, both, and cut in tensors: always the same."""

import pytest
import torch

from tests.ranks import Case, on_ranks

pytestmark = pytest.mark.sweep

LAYOUTS = {
    "fsdp-2": (2, []),
    "ddp-2": (2, ["dp_replicate=2"]),
    "hsdp-2x2": (4, ["dp_replicate=2"]),
    "tp-2": (2, ["tp=2"]),
}
MORE = {
    "fsdp-4": (4, []),
    "ddp-4": (4, ["dp_replicate=4"]),
    "fsdp-2-tp-2": (4, ["tp=2"]),
    "ddp-2-tp-2": (4, ["tp=2", "dp_replicate=2"]),
}
STEPS = 20


RAGGED = {
    "one": (1, {}),
    "fsdp-2": (2, {}),
    "ddp-2": (2, {"dp_replicate": 2}),
    "fsdp-2-budget": (2, {"recompute": "budget=0.6"}),
    "ddp-2-budget": (2, {"dp_replicate": 2, "recompute": "budget=0.6"}),
}
BROKEN = {
    "skipped": (2, {"nonfinite": "skip"}, 3),
    "skipped-ddp": (2, {"nonfinite": "skip", "dp_replicate": 2}, 3),
    "scaled": (2, {"precision": "16-mixed", "nonfinite": "skip"}, 3),
}


def on_all(layouts, folder):
    cases = [Case("tests.techniques.ranks", "losses", ranks, (words, STEPS)) for ranks, words in layouts.values()]
    return dict(zip(layouts, on_ranks(cases, folder), strict=True))


def agree(one, many):
    """Every rank has the same, and that is what one process has."""
    for rank in many:
        assert rank["counts"] == one["counts"]
        assert rank["losses"] == many[0]["losses"]
        assert rank["losses"] == pytest.approx(one["losses"], rel=1e-5)
        assert rank["norms"] == pytest.approx(one["norms"], rel=1e-4)
        for name, weight in rank["weights"].items():
            assert torch.equal(weight, many[0]["weights"][name]), name


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """Steps of a small gpt on one process, and in every layout."""
    return on_all({"one": (1, []), **LAYOUTS}, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_are_those_of_one_process(taken, layout):
    agree(taken["one"][0], taken[layout])


def test_four_replicas_made_anew_sum_in_the_same_order(tmp_path):
    """torch's DDP sorts gradients into other buckets after its first step, and so sums three or more otherwise."""
    cases = [Case("tests.techniques.ranks", "summed", 4, (anew,)) for anew in (False, True)]
    (once, *_), (anew, *_) = on_ranks(cases, tmp_path)
    assert torch.equal(once, anew)


def test_the_layout_is_explained(taken):
    said = {layout: " ".join(ranks[0]["choices"]) for layout, ranks in taken.items()}
    assert "gathers 2 blocks (blocks.0 to blocks.1)" in said["fsdp-2"]
    assert "ddp keeps the whole model on each of 2 ranks" in said["ddp-2"]
    assert "over 2 ranks, in 2 replicas," in said["hsdp-2x2"]
    assert "tp=2: 96.1% of all parameters" in said["tp-2"]
    assert said["one"] == ""


@pytest.mark.long
def test_losses_are_those_of_one_process_in_more_layouts(tmp_path):
    taken = on_all({"one": (1, []), **MORE}, tmp_path)
    for layout in MORE:
        agree(taken["one"][0], taken[layout])


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    module, folder = "tests.techniques.ranks", tmp_path_factory.mktemp("ragged")
    cases = [Case(module, "ragged", ranks, (settings,)) for ranks, settings in RAGGED.values()]
    cases += [Case(module, "ragged", ranks, (settings, broken)) for ranks, settings, broken in BROKEN.values()]
    return dict(zip([*RAGGED, *BROKEN], on_ranks(cases, folder), strict=True))


@pytest.mark.parametrize("layout", ["fsdp-2", "ddp-2", "fsdp-2-budget", "ddp-2-budget"])
def test_it_does_not_matter_on_which_rank_the_long_sequences_fall(ragged, layout):
    """Nor for what is dropped out: that follows from the place of a micro-batch in the step."""
    [one], many = ragged["one"], ragged[layout]
    for rank in many:
        assert rank["losses"] == pytest.approx(one["losses"], rel=1e-5)
        for name, value in rank["state"].items():
            assert torch.equal(value, many[0]["state"][name]), name
            if name != "seen":
                torch.testing.assert_close(value, one["state"][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["fsdp-2-budget", "ddp-2-budget"])
def test_all_ranks_recompute_the_same_blocks_whatever_their_sequences(ragged, layout):
    """The first of one rank has a single token, that of the other forty."""
    one, other = (rank["choices"] for rank in ragged[layout])
    assert one == other
    assert "1 (blocks.0) of 2 blocks run again in backward" in one[-1]
    assert "0.01 MiB kept for backward, at most 0.01 MiB" in one[-1]


@pytest.mark.parametrize("layout", BROKEN)
def test_a_loss_that_is_nan_on_one_rank_costs_the_update_of_all(ragged, layout):
    for rank in ragged[layout]:
        assert rank["updated"] == [False] * 3
        for name, value in rank["state"].items():
            assert torch.equal(value, ragged[layout][0]["state"][name]), name
