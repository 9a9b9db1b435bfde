"""The built-in llama as a Llama of transformers. Both rotate numbers that are half a head apart: no row moves."""

from __future__ import annotations

from typing import Any

import torch

_LAYERS = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
_WHOLE = {"token": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
BASES = (500_000.0, 10_000.0)
"""The bases of rotary positions that are known: Llama 3 and Llama 2."""


def to_llama(network: torch.nn.Module) -> tuple[Any, dict[str, torch.Tensor], dict[str, str]] | None:
    """Config, tensors, and the modules that compute the same; None if the network has other layers."""
    state = network.state_dict()
    blocks: Any = getattr(network, "blocks", ())
    if not len(blocks) or not {"token.weight", "blocks.0.attention.query.weight", "blocks.0.mlp.gate.weight"} <= set(
        state
    ):
        return None
    config = _config(network, state)
    found = {f"{theirs}.weight": state[f"{ours}.weight"] for ours, theirs in _WHOLE.items()}
    for number in range(len(blocks)):
        for ours, theirs in _LAYERS.items():
            found[f"model.layers.{number}.{theirs}.weight"] = state[f"blocks.{number}.{ours}.weight"]
    modules = {"token": "model.embed_tokens"}
    modules |= {f"blocks.{number}": f"model.layers.{number}" for number in range(len(blocks))}
    return config, found, {**modules, "norm": "model.norm", "head": "lm_head"}


def _config(network: torch.nn.Module, state: dict[str, torch.Tensor]) -> Any:
    from transformers import LlamaConfig

    blocks: Any = network.blocks
    head_width = blocks[0].attention.head_width
    vocabulary, width = state["token.weight"].shape
    turns: Any = network.turns
    config: Any = LlamaConfig
    return config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=len(state["blocks.0.mlp.gate.weight"]),
        num_hidden_layers=len(blocks),
        num_attention_heads=len(state["blocks.0.attention.query.weight"]) // head_width,
        num_key_value_heads=len(state["blocks.0.attention.key.weight"]) // head_width,
        head_dim=head_width,
        max_position_embeddings=turns.shape[1],
        rope_theta=base_of(turns, head_width),
        rms_norm_eps=blocks[0].mlp_norm.eps,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )


def base_of(turns: torch.Tensor, head_width: int) -> float:
    """The base that gives these cosines and sines."""
    last = min(turns.shape[1], 64) - 1
    for base in BASES:
        speeds = base ** (-torch.arange(0, head_width, 2, device=turns.device).float() / head_width)
        if torch.allclose(turns[0, last, : head_width // 2].float(), (last * speeds).cos(), atol=1e-4):
            return base
    angle = torch.acos(turns[0, 1, 1].double())  # of position 1 and the second pair: base ** (-2 / head width)
    return float(angle ** (-head_width / 2))
