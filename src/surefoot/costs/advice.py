"""Advice: how to make the largest storage at the peak smaller."""

from surefoot.records.plan import Plan
from surefoot.records.usage import Holding, Usage
from surefoot.units import bytes_text

MUCH = 0.1
"""Of the peak: the share from which one tensor, or one account, is worth a change."""
_IN_A_SCRIPT = {
    " (loss_chunks=8)": "",
    "set fused=true": "pass fused=True to it",
    "micro_batch_size": "the batch size",
}
"""The words for a script, which has none of a recipe's knobs."""
_OF_THE_LOSS = ("log_softmax", "nll_loss", "cross_entropy")


def largest(usage: Usage) -> Holding | None:
    """The largest storage at the peak. Among equals it prefers the loss, which is easiest to shrink."""
    return max(usage.largest, key=lambda each: (each.size_bytes, _is_of_the_loss(each)), default=None)


def first_change(plan: Plan) -> str:
    """What to change first for less memory: about one large tensor, or else about the account that takes the most.

    Empty if each is a small part of the peak, as beside the workspace of a tiny model.
    """
    whole, holding = plan.steady.peak.peak_bytes, largest(plan.steady)
    if (
        holding is not None
        and holding.account != "workspace"
        and holding.size_bytes >= MUCH * whole
        and (advice := advise(holding))
    ):
        tensor = f"{bytes_text(holding.size_bytes)}, {holding.tensor}"
        return f"{_worded(plan, advice)}; the largest tensor is {tensor}{_search(plan)}"
    accounts = sorted(plan.steady.tally.under("memory").items(), key=lambda item: -item[1])
    for name, size in accounts:
        if name == "workspace" or size < MUCH * whole:
            continue
        if advice := advise(Holding(int(size), name, "", "", "", "")):
            return f"{_worded(plan, advice)}; {size / whole:.0%} of the peak is {name}{_search(plan)}"
    return ""


def _search(plan: Plan) -> str:
    """How to search for settings, if the step does not fit."""
    if plan.fit is None or plan.fit.fits:
        return ""
    option = '--largest-argument "--batch-size {}"' if plan.script else "--fit"
    return f". {option} searches for what fits"


def _worded(plan: Plan, advice: str) -> str:
    if plan.knobs.get("micro_batch_size") == 1:  # it cannot be lower
        advice = advice.replace("lower micro_batch_size, or ", "").replace("lower micro_batch_size", "shorten a sample")
    if plan.script:
        for knob, words in _IN_A_SCRIPT.items():
            advice = advice.replace(knob, words)
    return advice


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
