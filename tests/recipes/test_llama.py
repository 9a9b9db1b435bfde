"""llama: the published sizes, the published architecture, and a small one that learns."""

import pytest
import torch

import surefoot
from surefoot.recipes.llama import SHAPES, Llama, Shape, rotations, turned

PUBLISHED = {"8b": 8_030_261_248, "70b": 70_553_706_496, "405b": 405_853_388_800}
SMALL = Shape(layers=2, width=64, heads=8, kv_heads=4, hidden=96, vocabulary=100, context=32, lr=1e-3)


@pytest.mark.parametrize(("size", "parameters"), PUBLISHED.items())
def test_the_published_numbers_of_parameters(size: str, parameters: int):
    with torch.device("meta"):
        assert sum(each.numel() for each in Llama(SHAPES[size]).parameters()) == parameters


def test_it_computes_what_transformers_computes():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=32, rms_norm_eps=1e-5, rope_theta=500_000.0,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config).eval()
    ours, tokens = Llama(SMALL), torch.randint(0, 100, (2, 32))
    ours.load_state_dict({_our_name(name): weight for name, weight in theirs.state_dict().items()})
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits)


def _our_name(name: str) -> str:
    for theirs, own in (
        ("model.embed_tokens", "token"), ("model.layers", "blocks"), ("model.norm", "norm"), ("lm_head", "head"),
        ("self_attn.q_proj", "attention.query"), ("self_attn.k_proj", "attention.key"),
        ("self_attn.v_proj", "attention.value"), ("self_attn.o_proj", "attention.out"),
        ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "mlp_norm"),
        ("gate_proj", "gate"), ("up_proj", "up"), ("down_proj", "down"),
    ):  # fmt: skip
        name = name.replace(theirs, own)
    return name


def test_turning_keeps_lengths_and_depends_on_distance_only():
    x, turns = torch.randn(1, 1, 2, 16), rotations(64, 16)
    scores = [
        (turned(x[:, :, :1], turns[:, at : at + 1]) * turned(x[:, :, 1:], turns[:, at + 5 : at + 6])).sum()
        for at in (0, 20, 58)
    ]
    torch.testing.assert_close(turned(x, turns[:, :2]).norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(scores, [scores[0]] * 3, rtol=1e-4, atol=1e-4)


def test_the_small_one_learns(tmp_path):
    recipe = surefoot.load_recipe("llama", ["layers=2", "context=64", "max_steps=15"])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    losses = [row.loss for row in run.rows()]
    assert losses[-1] < 0.7 * losses[0]
