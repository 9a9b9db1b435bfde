"""A run that starts from trained weights beside training the same model from scratch: tokens, days and dollars."""

from surefoot.costs.napkin import napkin
from surefoot.hardware import Cluster
from surefoot.records.plan import RunCost
from surefoot.records.token_ledger import OPTIMAL_TOKENS_PER_PARAMETER
from surefoot.units import amount_text, count_text, seconds_text


def beside_scratch(cost: RunCost, machines: Cluster, *, parameters: int, number_format: str) -> str:
    """The tokens, time and price of both on the same devices. Empty if no source states the peak of the device."""
    scratch = napkin(
        machines,
        parameters=parameters,
        tokens=OPTIMAL_TOKENS_PER_PARAMETER * parameters,
        number_format=number_format,
    )
    if scratch.seconds is None or scratch.tokens is None:
        return ""
    return (
        f"this run: {_sums(cost.tokens, cost.seconds, cost.dollars)}; from scratch at {OPTIMAL_TOKENS_PER_PARAMETER} "
        f"tokens per parameter: {_sums(scratch.tokens, scratch.seconds, scratch.dollars)} on as many devices, by 6ND "
        f"at {scratch.mfu:.0%} of their {number_format} peak"
    )


def _sums(tokens: float, seconds: float, dollars: float | None) -> str:
    price = "" if dollars is None else f", {amount_text(dollars, 'dollars')}"
    return f"{count_text(tokens)} tokens, {seconds_text(seconds)}{price}"
