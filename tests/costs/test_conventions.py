"""Conventions reproduce the FLOPs per token, MFU and HFU that published figures imply."""

import json
from collections import Counter
from pathlib import Path

import pytest

from surefoot.costs.conventions import CONVENTIONS, RECOMPUTED, flops_per_token, utilisation

PUBLISHED = Path(__file__).with_name("published_flops.jsonl")
"""FLOPs per token that follow from a stated MFU or TFLOP/s, where one convention gives them within half a percent."""
SPEEDS = Path(__file__).parents[2] / "bench" / "public_speeds.jsonl"


def rows(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_published_flops_per_token_are_reproduced():
    sources = Counter()
    for row in rows(PUBLISHED):
        shape = {key: row[key] for key in ("parameters", "embedding", "attention_width", "context")}
        assert flops_per_token(row["convention"], **shape) == pytest.approx(row["stated"], rel=0.005), row["id"]
        sources[row["source"]] += 1
    assert sources["llm-foundry"] == 216
    assert sources["torchtitan"] > 60
    assert sources["megatron-bridge"] > 80
    assert sources["bloom"] > 30


def test_published_mfu_and_hfu_are_reproduced():
    for row in rows(SPEEDS):
        if row["source"] != "llm-foundry":
            continue  # fms-fsdp states two digits
        shape = {"attention_width": row["n_layers"] * row["d_model"], "context": row["seq_len"]}
        model = flops_per_token("PaLM", parameters=row["params_total"], embedding=0, **shape)
        again = RECOMPUTED if row["activation_checkpointing"] == "full" else 1
        on = {"tokens_per_second": row["tokens_per_s_per_gpu"], "peak_flops": row["mfu_peak_flops"]}
        assert 100 * utilisation(model, **on) == pytest.approx(row["mfu_pct"], rel=0.005), row["id"]
        assert 100 * utilisation(again * model, **on) == pytest.approx(row["hfu_pct"], rel=0.005), row["id"]


def test_llama_3_8b_by_hand():
    """At a context of 8,192 the conventions are 19% apart."""
    shape = {"parameters": 8_030_261_248, "embedding": 128_256 * 4096, "attention_width": 32 * 4096, "context": 8192}
    counted = {name: flops_per_token(name, **shape) for name in CONVENTIONS}
    assert counted["PaLM"] / counted["Megatron-Bridge"] == pytest.approx(1.19, abs=0.01)
    assert counted["torchtitan"] == pytest.approx(57.9e9, rel=1e-2)
