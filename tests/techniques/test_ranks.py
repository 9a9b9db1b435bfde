"""One update on 1, 2 and 4 ranks, replicated, sharded, both, and cut in tensors: always the same."""

import pytest
import torch

from tests.ranks import Case, on_ranks

LAYOUTS = {
    "fsdp-2": (2, []),
    "ddp-2": (2, ["dp_replicate=2"]),
    "fsdp-4": (4, []),
    "ddp-4": (4, ["dp_replicate=4"]),
    "hsdp-2x2": (4, ["dp_replicate=2"]),
}
STEPS = 20


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """Steps of a small gpt on one process, and in every layout."""
    layouts = {"one": (1, []), **LAYOUTS}
    cases = [Case("tests.techniques.ranks", "losses", ranks, (words, STEPS)) for ranks, words in layouts.values()]
    return dict(zip(layouts, on_ranks(cases, tmp_path_factory.mktemp("ranks")), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_are_those_of_one_process(taken, layout):
    [one], many = taken["one"], taken[layout]
    for rank in many:
        assert rank["counts"] == one["counts"]
        assert rank["losses"] == many[0]["losses"]
        assert rank["losses"] == pytest.approx(one["losses"], rel=1e-5)
        assert rank["norms"] == pytest.approx(one["norms"], rel=1e-4)
        for name, weight in rank["weights"].items():
            assert torch.equal(weight, many[0]["weights"][name]), name
