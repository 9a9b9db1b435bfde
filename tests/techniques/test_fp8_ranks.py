"""FP8 on sharded ranks: the losses and weights of one rank, FP8 on the wire, and a resume to the bit."""

import pytest
import torch

import surefoot
from surefoot import read_run
from tests.planned_ranks import recipe
from tests.ranks import Case, on_ranks
from tests.resumed import state

pytestmark = pytest.mark.sweep

LAYOUTS = {"one": (1, []), "shards": (2, ["dp_shard=2"]), "hybrid": (4, ["dp_replicate=2"])}


@pytest.fixture(scope="module", autouse=True)
def torchao():
    pytest.importorskip("torchao")


def test_twenty_steps_are_those_of_one_rank(tmp_path):
    """Sharded ranks round norms and embeddings to bfloat16, where autocast keeps float32: that is the difference."""
    cases = [
        Case("tests.techniques.ranks", "losses", ranks, ([*words, "precision=fp8"],))
        for ranks, words in LAYOUTS.values()
    ]
    (one,), *others = on_ranks(cases, tmp_path)
    for ranks in others:
        for found in ranks:
            assert found["losses"] == pytest.approx(one["losses"], rel=1e-3)
            assert any("gather the weights of these layers in FP8" in said for said in found["choices"])
            for name, weight in one["weights"].items():
                torch.testing.assert_close(found["weights"][name], weight, rtol=0, atol=5e-3)


def test_a_resume_on_shards_is_exact_to_the_bit(tmp_path):
    words = ["precision=fp8", "ema=0.9"]
    stops = {"whole": [None], "pieces": [(1, 4), None]}
    cases = [
        Case("tests.ways.ranks", "trained", 2, (str(tmp_path / name), words, asked))
        for name, parts in stops.items()
        for asked in parts
    ]
    statuses = [set(each) for each in on_ranks(cases, tmp_path)]
    assert statuses == [{"finished"}, {"interrupted"}, {"finished"}]
    whole, pieces = (read_run(tmp_path / name) for name in stops)
    assert [row.loss for row in pieces.rows()] == [row.loss for row in whole.rows()]
    expected, found = state(tmp_path / "whole"), state(tmp_path / "pieces")
    assert expected.keys() == found.keys()
    for place, leaf in expected.items():
        assert torch.equal(leaf, found[place]) if isinstance(leaf, torch.Tensor) else leaf == found[place], place


def test_ranks_send_one_byte_for_a_weight():
    """Scales of all weights are one all-reduce at the start of a step, not one for each gathering."""
    eight, sixteen = (
        surefoot.plan(recipe(dp_shard=2, precision=each, micro_batch_size=16), on="2xcpu").steady.tally
        for each in ("fp8", "bf16-mixed")
    )
    gathered = "traffic/all-gather/dp_shard"
    assert 0.5 <= eight.total(gathered) / sixteen.total(gathered) < 0.75
    sums = [tally.total("collectives/all-reduce") for tally in (eight, sixteen)]
    assert sums[0] - sums[1] == 1
