"""What fits on GPUs: options that experts set are tried one by one, and a margin stays free."""

import pytest

import surefoot
from surefoot.planning.fit.search import what_fits
from surefoot.planning.fit.trials import FRAGMENTED, NCCL_BYTES, margin
from surefoot.records.search import Limit
from surefoot.reports.budget import limit_line
from surefoot.reports.console import as_text
from surefoot.reports.search import search_text
from surefoot.world.gpu.target import gpu

ON = "2xa100-sxm-40gb"


@pytest.fixture(scope="module")
def search():
    words = ["layers=2", "context=128", "precision=bf16-mixed", "micro_batch_size=8"]
    return what_fits(surefoot.load_recipe("llama", words), on=ON, fixed=["micro_batch_size", "recompute"])


def test_every_option_is_planned_on_top_of_those_that_helped(search):
    tried = {name: value for trial in search.trials for name, value in trial.knobs.items()}
    assert tried.items() >= {"fused": True, "compile": "blocks", "loss_chunks": 8, "reduce_in": "bfloat16"}.items()
    assert tried["reshard_after_forward"] is False
    fastest = next(answer.trial for answer in search.answers if answer.question == "fastest")
    assert fastest.token_seconds == min(trial.token_seconds for trial in search.trials if trial.holds)
    assert fastest.knobs.get("fused") is True  # fewer kernels for so small a model


def test_layers_are_split_with_their_loss_where_ranks_wait(search):
    split = [trial.knobs for trial in search.trials if "tp" in trial.knobs]
    assert split
    assert all(knobs["loss_parallel"] is True and "loss_chunks" not in knobs for knobs in split)


def test_a_margin_stays_free_and_is_stated(search):
    assert margin(ON) == round(FRAGMENTED * gpu("a100-sxm-40gb").memory_bytes) + NCCL_BYTES
    assert margin("a100-sxm-40gb") == margin(ON) - NCCL_BYTES
    assert margin("4xcpu") == margin(None) == 0
    (limit,) = search.trials[0].limits
    assert limit.allowed == gpu("a100-sxm-40gb").memory_bytes - margin(ON)
    assert "of each device stay free on 2xa100-sxm-40gb: for NCCL and fragmentation" in " ".join(
        as_text(search_text(search)).split()
    )
    said = limit_line(Limit("memory", "bytes", 2**30, 2**31, "t4", 2**20))
    assert said == "memory: 2.00 GiB of 1.00 GiB that t4 has beside a margin of 1.00 MiB: 1.00 GiB too much"


def test_where_the_model_itself_is_too_large_the_search_says_so():
    words = ["size=8b", "layers=1", "context=128"]
    found = what_fits(surefoot.load_recipe("llama", words), on="t4", fixed=["micro_batch_size", "recompute"])
    assert not found.answers
    assert "parameters, gradients and optimizer state alone take" in found.notes[0]
    assert "train adapters" in found.notes[0]
