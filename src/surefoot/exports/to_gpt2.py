"""The built-in gpt as a GPT-2 of transformers: the same layers, other names, and matrices the other way round."""

from __future__ import annotations

from typing import Any

import torch

_LAYERS = {
    "attention_norm": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.0": "mlp.c_fc",
    "mlp.2": "mlp.c_proj",
}
_WHOLE = {"token": "transformer.wte", "position": "transformer.wpe", "norm": "transformer.ln_f", "head": "lm_head"}


def to_gpt2(network: torch.nn.Module) -> tuple[Any, dict[str, torch.Tensor], dict[str, str]] | None:
    """Config, tensors, and the modules that compute the same; None if the network has other layers."""
    state = network.state_dict()
    blocks: Any = getattr(network, "blocks", ())
    if not len(blocks) or not {"token.weight", "position.weight", "blocks.0.attention.qkv.weight"} <= state.keys():
        return None
    head_width = blocks[0].attention.head_width
    found: dict[str, torch.Tensor] = {}
    for ours, theirs in _WHOLE.items():
        found |= {
            f"{theirs}.{each}": state[f"{ours}.{each}"] for each in ("weight", "bias") if f"{ours}.{each}" in state
        }
    for number in range(len(blocks)):
        for ours, theirs in _LAYERS.items():
            weight, bias = (state.get(f"blocks.{number}.{ours}.{each}") for each in ("weight", "bias"))
            assert weight is not None
            bias = weight.new_zeros(len(weight)) if bias is None else bias
            if ours == "attention.qkv":
                weight, bias = _by_kind(weight, head_width), _by_kind(bias, head_width)
            name = f"transformer.h.{number}.{theirs}"
            found |= {f"{name}.weight": weight.t().contiguous() if weight.dim() == 2 else weight, f"{name}.bias": bias}
    modules = {"token": "transformer.wte"}
    modules |= {f"blocks.{number}": f"transformer.h.{number}" for number in range(len(blocks))}
    modules |= {"norm": "transformer.ln_f", "head": "lm_head"}
    return _config(network, state, state["token.weight"].shape[1] // head_width), found, modules


def _by_kind(packed: torch.Tensor, head_width: int) -> torch.Tensor:
    """Rows that are query, key and value of one head after the other, as all queries, all keys, all values."""
    return packed.unflatten(0, (-1, 3, head_width)).transpose(0, 1).flatten(0, 2)


def _config(network: torch.nn.Module, state: dict[str, torch.Tensor], heads: int) -> Any:
    from transformers import GPT2Config

    blocks: Any = network.blocks
    vocabulary, width = state["token.weight"].shape
    return GPT2Config(
        vocab_size=vocabulary,
        n_positions=len(state["position.weight"]),
        n_embd=width,
        n_layer=len(blocks),
        n_head=heads,
        n_inner=len(state["blocks.0.mlp.0.weight"]),
        activation_function="gelu_pytorch_tanh" if blocks[0].mlp[1].approximate == "tanh" else "gelu",
        layer_norm_epsilon=blocks[0].mlp_norm.eps,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=state["head.weight"].data_ptr() == state["token.weight"].data_ptr(),
    )
