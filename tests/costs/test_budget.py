"""A plan held to a budget: which limit, and by how much."""

import pytest

from surefoot.costs.budget import limits_of
from surefoot.costs.run_cost import run_cost
from surefoot.errors import BudgetError
from surefoot.hardware import cluster
from surefoot.records.plan import Fit, Plan
from surefoot.records.search import Budget
from surefoot.records.step_time import StepTime
from surefoot.records.usage import Peak, Usage
from surefoot.reports.budget import limit_line

GIB = 2**30


def plan(**more) -> Plan:
    steady = Usage(peak=Peak(peak_bytes=3 * GIB))
    return Plan("r", "", {}, parameters=1, tokens_per_step=1, micro_batches=1, steps=1, steady=steady, **more)


def on_a_gpu(classic: int, expandable: int, **more) -> Plan:
    reserved = {"classic": classic, "expandable": expandable}
    fit = Fit.of("h100-sxm", memory_bytes=10 * GIB, context_bytes=GIB, reserved_bytes=reserved)
    return plan(fit=fit, reserved_bytes=reserved, **more)


def cost(price: float | None = 2.0):
    machines = cluster("8xh100-sxm", dollars_per_hour=price)
    return run_cost(machines, steps=100, tokens_per_step=1, step_seconds=864, failures_per_device_hour=0)


def test_on_a_cpu_memory_is_what_is_live():
    assert limits_of(plan(), Budget()) == ()
    (limit,) = limits_of(plan(), Budget(memory_bytes=4 * GIB))
    assert (limit.holds, limit.excess) == (True, -GIB)
    assert limit_line(limit) == "memory: 3.00 GiB of 4.00 GiB that the budget allows: 1.00 GiB to spare"


def test_a_gpu_is_a_limit_of_its_own():
    (limit,) = limits_of(on_a_gpu(10 * GIB, 10 * GIB), Budget())
    assert limit_line(limit) == "memory: 11.00 GiB of 10.00 GiB that h100-sxm has: 1.00 GiB too much"
    (limit,) = limits_of(on_a_gpu(8 * GIB, 8 * GIB), Budget(memory_bytes=20 * GIB))
    assert (limit.allowed, limit.holds) == (10 * GIB, True)


def test_where_only_expandable_segments_hold_the_budget_they_are_taken():
    (limit,) = limits_of(on_a_gpu(8 * GIB, 5 * GIB), Budget(memory_bytes=7 * GIB))
    assert (limit.amount, limit.holds) == (6 * GIB, True)


def test_days_and_dollars():
    days, dollars = limits_of(plan(cost=cost()), Budget(days=0.5, dollars=400))
    assert limit_line(days) == "days: 1 days of 0.5 days that the budget allows: 0.5 days too much"
    assert limit_line(dollars) == "dollars: 384 dollars of 400 dollars that the budget allows: 16 dollars to spare"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (plan(), "name the GPUs with --on"),
        (plan(time=StepTime(1.0)), "none of max_steps, max_tokens and max_epochs"),
        (plan(cost=cost(0.0)), "no price"),
    ],
)
def test_what_is_not_known_is_no_verdict(made, message):
    with pytest.raises(BudgetError, match=message):
        limits_of(made, Budget(dollars=1.0))
