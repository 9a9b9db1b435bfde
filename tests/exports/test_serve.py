"""plan --serve: the bytes of weights, keys and values of a model, and the time to read them."""

import json

import pytest
import torch
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.errors import RunError
from surefoot.exports.decode import Cache
from surefoot.exports.serve import plan_serving
from surefoot.recipe.load import load_recipe
from tests import exports_models as models

SMALL = {
    "gpt": ["layers=2", "width=32", "heads=2", "context=32"],
    "llama": ["layers=2", "context=32"],
}


@pytest.mark.parametrize("name", SMALL)
def test_keys_and_values_are_those_that_real_generation_keeps(name):
    recipe = load_recipe(name, SMALL[name])
    planned = plan_serving(recipe, batch=3)
    model = recipe.model().eval()
    with torch.no_grad(), Cache() as cache:
        model(torch.zeros(3, 32, dtype=torch.int64))
    assert planned.rows[0].cache_bytes == sum(each.nbytes for pair in cache.kept for each in pair)
    assert planned.rows[0].weights_bytes == sum(each.nbytes for each in model.parameters())
    assert [row.fits for row in planned.rows] == [None, None]


def test_llama_8b_on_an_h100_by_hand():
    """32 layers of 8 heads of 128 keys and as many values; the input embedding is looked up, not read whole."""
    planned = plan_serving(load_recipe("llama", ["size=8b", "context=1024"]), on="h100-sxm", batch=8)
    row = planned.rows[1]
    assert (row.format, row.cache_bytes) == ("bfloat16", 8 * 1024 * 32 * 2 * 8 * 128 * 2)
    read = 2 * (planned.parameters - 128256 * 4096) + row.cache_bytes
    assert row.tokens_per_second == pytest.approx(8 * planned.bandwidth / read)
    assert row.fits
    two = plan_serving(load_recipe("llama", ["size=8b", "context=1024"]), on="2xh100-sxm", batch=8).rows[1]
    assert (two.weights_bytes, two.tokens_per_second) == (
        row.weights_bytes // 2,
        pytest.approx(2 * row.tokens_per_second),
    )


def test_a_model_of_transformers_counts_its_own_cache(tmp_path):
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, **shape).save_pretrained(tmp_path)
    planned = plan_serving(load_recipe("hf", [f"config={tmp_path}", "context=16"]), batch=2)
    assert (
        planned.rows[0].cache_bytes == 2 * 16 * 2 * 2 * 2 * 8 * 4
    )  # texts, tokens, layers, k and v, heads, width, bytes


def test_what_makes_no_text_is_refused():
    with pytest.raises(
        RunError, match=r"cannot be called with tokens alone, so it makes no text: TypeError: .*lengths"
    ):
        plan_serving(models.tagger())
    with pytest.raises(RunError, match=r"does not return logits|cannot be called with tokens alone"):
        plan_serving(load_recipe("sentiment"))


def test_the_command_says_whether_it_fits():
    said = CliRunner().invoke(app, ["plan", "gpt", *SMALL["gpt"], "--serve", "--batch", "4", "--on", "h100-sxm"])
    assert said.exit_code == 0, said.output
    assert "4 texts of 32 tokens" in said.output
    assert "3,350 GB/s of 1 x h100-sxm" in " ".join(said.output.split())
    made = CliRunner().invoke(app, ["plan", "gpt", *SMALL["gpt"], "--serve", "--json"])
    assert json.loads(made.stdout)["batch"] == 1
    assert CliRunner().invoke(app, ["plan", "gpt", "--serve", "--fit"]).exit_code == 2
    assert CliRunner().invoke(app, ["plan", "gpt", "--batch", "4"]).exit_code == 2
