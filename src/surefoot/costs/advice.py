"""Advice: how to make the largest storage at the peak smaller."""

from surefoot.records.usage import Holding, Usage

_OF_THE_LOSS = ("log_softmax", "nll_loss", "cross_entropy")


def largest(usage: Usage) -> Holding | None:
    """The largest storage at the peak. Among equals it prefers the loss, which is easiest to shrink."""
    return max(usage.largest, key=lambda each: (each.size_bytes, _is_of_the_loss(each)), default=None)


def advise(holding: Holding) -> str:
    """One sentence for one storage; empty if there is no simple advice."""
    operator = holding.operator
    if _is_of_the_loss(holding):
        return (
            "the loss holds the logits of all samples at once: compute it on a part of the samples at a time "
            "(loss_chunks=8)"
        )
    if holding.account in ("activations", "temporary") and "softmax" in operator:
        return "attention keeps its full score matrix: use F.scaled_dot_product_attention"
    if holding.phase == "update" and "_foreach" in operator:
        return "the optimizer works on all parameters at once: set fused=true"
    if holding.account == "activations":
        return "lower micro_batch_size, or recompute the module in backward"
    if holding.account == "workspace" and holding.tensor:
        return "a library keeps it for any model"
    if holding.account == "workspace":
        return "the kernel needs it for a moment: lower micro_batch_size"
    if holding.account == "inputs":
        return "the batch itself is large: lower micro_batch_size, or use a smaller dtype"
    if holding.account in ("parameters", "gradients", "optimizer"):
        return "the model itself is large: use fewer parameters, a smaller dtype, or more shards"
    return ""


def _is_of_the_loss(holding: Holding) -> bool:
    return holding.account in ("activations", "temporary") and any(name in holding.operator for name in _OF_THE_LOSS)
