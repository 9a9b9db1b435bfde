"""Offload on gloo ranks: the bits of the same layout without it, one rank's losses, and resumes to the bit."""

import pytest
import torch

from surefoot import read_run
from tests.ranks import Case, on_ranks
from tests.resumed import state

pytestmark = pytest.mark.sweep

LAYOUTS = {"one": (1, []), "shards": (2, ["dp_shard=2"]), "replicas": (2, ["dp_replicate=2"])}
KINDS = ["activations"]


def test_twenty_steps_are_those_without_it_and_those_of_one_rank(tmp_path):
    ways = [(name, kind) for name in LAYOUTS for kind in ["none", *KINDS]]
    cases = [
        Case("tests.techniques.ranks", "losses", LAYOUTS[name][0], ([*LAYOUTS[name][1], f"offload={kind}"],))
        for name, kind in ways
    ]
    found = dict(zip(ways, on_ranks(cases, tmp_path), strict=True))
    (one,) = found["one", "none"]
    for (name, kind), ranks in found.items():
        for plain, rank in zip(found[name, "none"], ranks, strict=True):
            assert rank["losses"] == plain["losses"], (name, kind)
            assert rank["norms"] == plain["norms"], (name, kind)
            assert rank["losses"] == pytest.approx(one["losses"], rel=1e-5)
            for weight, value in plain["weights"].items():
                assert torch.equal(rank["weights"][weight], value), (name, kind, weight)
                torch.testing.assert_close(value, one["weights"][weight], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_with_it_and_one_without_it_end_in_the_same_bits(kind, tmp_path):
    """The first part offloads. The rest is taken with it, or without it."""
    offloaded, plain = [f"offload={kind}", "ema=0.9"], ["offload=none", "ema=0.9"]
    parts = {"whole": [(plain, None)], "with": [(offloaded, (1, 4)), (offloaded, None)]}
    parts["without"] = [(offloaded, (1, 4)), (plain, None)]
    cases = [
        Case("tests.ways.ranks", "trained", 2, (str(tmp_path / name), words, asked))
        for name, taken in parts.items()
        for words, asked in taken
    ]
    statuses = [set(each) for each in on_ranks(cases, tmp_path)]
    assert statuses == [{"finished"}, {"interrupted"}, {"finished"}, {"interrupted"}, {"finished"}]
    runs = {name: read_run(tmp_path / name) for name in parts}
    expected = state(tmp_path / "whole")
    for name in ("with", "without"):
        assert [row.loss for row in runs[name].rows()] == [row.loss for row in runs["whole"].rows()]
        found = state(tmp_path / name)
        assert expected.keys() == found.keys()
        for place, leaf in expected.items():
            assert torch.equal(leaf, found[place]) if isinstance(leaf, torch.Tensor) else leaf == found[place], place
