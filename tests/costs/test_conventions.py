"""Conventions reproduce the FLOPs per token that published figures imply."""

import json
from pathlib import Path

import pytest

from surefoot.costs.conventions import CONVENTIONS, flops_per_token

DATA = Path(__file__).parents[3] / "shared" / "data"
FORMULAS = {
    "6*N_total + 12*L*H*Q*T (PaLM / nanoGPT, attention not halved)": "PaLM",
    "6*(N - input embedding) + 12*L*H*Q*T (torchtitan since 2024-05)": "torchtitan",
    "6*(N - input embedding) + 6*L*H*Q*T (causal attention halved)": "Megatron-Bridge",
}


def rows():
    """The published rows whose convention is known and whose architecture is whole."""
    if not DATA.exists():
        return
    runs = {row["id"]: row for row in map(json.loads, (DATA / "public_runs.jsonl").read_text().splitlines())}
    for checked in map(json.loads, (DATA / "mfu_check.jsonl").read_text().splitlines()):
        run = runs[checked["id"]]
        known = all(run.get(key) for key in ("n_layers", "d_model", "n_heads", "vocab_size", "seq_len"))
        exact = abs(checked["best_rel_err"]) < 0.002
        if known and exact and checked["best_formula"] in FORMULAS and checked["source"] != "megatron-bridge":
            yield checked, run


@pytest.mark.skipif(not DATA.exists(), reason="needs the published runs beside the checkout")
def test_published_figures_are_reproduced():
    errors = []
    for checked, run in rows():
        size = run.get("head_dim") or run["d_model"] // run["n_heads"]
        counted = flops_per_token(
            FORMULAS[checked["best_formula"]],
            parameters=checked["params_used"],
            embedding=run["vocab_size"] * run["d_model"],
            attention_width=run["n_layers"] * run["n_heads"] * size,
            context=run["seq_len"],
        )
        errors.append(abs(counted / checked["stated_flops_per_token"] - 1))
    assert len(errors) > 200
    assert max(errors) < 0.005


def test_llama_3_8b_by_hand():
    """At a context of 8,192 the conventions are 19% apart."""
    shape = {"parameters": 8_030_261_248, "embedding": 128_256 * 4096, "attention_width": 32 * 4096, "context": 8192}
    counted = {name: flops_per_token(name, **shape) for name in CONVENTIONS}
    assert counted["PaLM"] / counted["Megatron-Bridge"] == pytest.approx(1.19, abs=0.01)
    assert counted["torchtitan"] == pytest.approx(57.9e9, rel=1e-2)
