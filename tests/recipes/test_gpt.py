"""gpt: the published sizes, what GPT-2 computes, and a default that learns at once."""

import pytest
import torch

import surefoot
from surefoot import load_recipe
from surefoot.recipes.gpt import GPT, SHAPES

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}


@pytest.mark.parametrize(("size", "parameters"), PUBLISHED.items())
def test_the_published_numbers_of_parameters(size: str, parameters: int):
    recipe = load_recipe("gpt", [f"size={size}"])
    with torch.device("meta"):
        model = recipe.model()
    assert sum(each.numel() for each in model.parameters()) == parameters
    assert (model.token.num_embeddings, recipe.tokens_per_sample) == (50257, 1024)


def test_a_published_size_computes_what_transformers_computes():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=100, n_embd=64, n_layer=2, n_head=4, n_positions=32)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    ours, tokens = GPT(100, 2, 64, 4, 32, gpt2=True), torch.randint(0, 100, (2, 32))
    ours.load_state_dict({_our_name(name): _ours(name, weight) for name, weight in theirs.state_dict().items()})
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits)


def _our_name(name: str) -> str:
    for theirs, own in (
        ("transformer.wte", "token"), ("transformer.wpe", "position"), ("transformer.h", "blocks"),
        ("transformer.ln_f", "norm"), ("lm_head", "head"), ("ln_1", "attention_norm"), ("ln_2", "mlp_norm"),
        ("attn.c_attn", "attention.qkv"), ("attn.c_proj", "attention.out"), ("mlp.c_fc", "mlp.0"),
        ("mlp.c_proj", "mlp.2"),
    ):  # fmt: skip
        name = name.replace(theirs, own)
    return name


def _ours(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Their linear layers hold the transpose, and all queries before all keys; ours go head by head."""
    if ".c_" in name and name.endswith("weight"):
        weight = weight.T
    return weight.unflatten(0, (3, 4, -1)).transpose(0, 1).flatten(0, 2) if "c_attn" in name else weight


def test_a_knob_overrides_what_the_size_says():
    recipe = load_recipe("gpt", ["size=gpt2", "layers=2", "context=64", "precision=32-true", "lr=0"])
    with torch.device("meta"):
        model = recipe.model()
    assert (len(model.blocks), model.position.num_embeddings, model.token.embedding_dim) == (2, 64, 768)
    assert (recipe.precision, recipe.decay, recipe.tokens_per_sample) == ("32-true", "matrices", 64)
    assert recipe.optimizer([torch.zeros(1)]).param_groups[0]["lr"] == 0


def test_knobs_that_the_size_decides_are_not_listed_as_none():
    usual = {"size": "tiny", "micro_batch_size": 8, "corpus": "stdlib", "packed": False}
    assert load_recipe("gpt").knobs == usual
    assert load_recipe("gpt", ["max_grad_norm=none"]).knobs == {**usual, "max_grad_norm": None}


@pytest.mark.parametrize(
    "words", [["context=1024"], ["context=96"], ["micro_batch_size=3"], ["size=small", "context=4"]]
)
def test_another_context_or_micro_batch_alone_is_never_refused(words):
    assert load_recipe("gpt", words).micro_batches() >= 1


def test_the_former_default_has_a_name():
    """Figures in the docs were measured with it."""
    recipe, shape = load_recipe("gpt", ["size=small"]), SHAPES["small"]
    assert (shape.layers, shape.width, shape.heads, shape.lr) == (4, 256, 4, 1e-3)
    assert (recipe.tokens_per_sample, recipe.tokens_per_step, recipe.max_steps) == (256, 8192, 500)
    assert surefoot.plan(recipe).parameters == 3_281_408


def test_the_default_learns_from_the_first_steps_on(tmp_path):
    run = surefoot.train(load_recipe("gpt", ["max_steps=16"]), path=str(tmp_path / "run"))
    losses = [row.loss for row in run.rows()]
    assert losses[-1] < 0.75 * losses[0]
