"""Conventions: FLOPs per token as other projects count them, each with its formula.

N is all parameters, E the largest input embedding, A the sum over attention layers of heads x head size, T the
context. We checked numerically which project uses which, against the figures they publish.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Convention:
    """A formula, and the projects that use it."""

    formula: str
    used_by: str
    parameters: int
    embedding: int
    attention: int


CONVENTIONS = {
    "6N": Convention("6 N", "the rule of thumb", 6, 0, 0),
    "PaLM": Convention("6 N + 12 A T", "PaLM, nanoGPT, llm-foundry, torchtitan before May 2024", 6, 0, 12),
    "torchtitan": Convention("6 (N - E) + 12 A T", "torchtitan since May 2024, NeMo 24.07", 6, 6, 12),
    "Megatron-Bridge": Convention("6 (N - E) + 6 A T", "Megatron-Bridge: causal attention halved", 6, 6, 6),
}

HARDWARE_CONVENTIONS = {
    "Megatron": Convention("8 N - 2 E + 16 A T", "Megatron-LM in 2021, BLOOM: blocks run forward again", 8, 2, 16),
}
"""What a device executes if all blocks are recomputed. That is more than the model needs."""

RECOMPUTED = 4 / 3
"""Hardware FLOPs over model FLOPs in llm-foundry's HFU, if all blocks are recomputed."""


def flops_per_token(name: str, *, parameters: int, embedding: int, attention_width: int, context: int) -> int:
    """FLOPs of forward and backward for one token, by a convention's formula."""
    rule = (CONVENTIONS | HARDWARE_CONVENTIONS)[name]
    return rule.parameters * parameters - rule.embedding * embedding + rule.attention * attention_width * context


def utilisation(flops_per_token: float, *, tokens_per_second: float, peak_flops: float) -> float:
    """The share of one device's peak: an MFU by model FLOPs, an HFU by hardware FLOPs."""
    return flops_per_token * tokens_per_second / peak_flops
