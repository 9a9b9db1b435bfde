"""Budget: compares a plan's memory, days and dollars with their limits."""

from surefoot.errors import BudgetError
from surefoot.records.plan import Fit, Plan
from surefoot.records.search import HOST, Budget, Limit


def limits_of(plan: Plan, budget: Budget, *, margin_bytes: int = 0) -> tuple[Limit, ...]:
    """Every limit of a plan: those of the budget, and the memory of its device, of which a margin stays free."""
    return (*_memory(plan, budget.memory_bytes, margin_bytes), *_host(plan), *_cost(plan, budget))


def _memory(plan: Plan, allowed: int | None, margin: int) -> tuple[Limit, ...]:
    """On a GPU, counts the allocator's reserved bytes and the CUDA context; on a CPU, live bytes."""
    if plan.fit is None:
        return () if allowed is None else (Limit("memory", "bytes", allowed, plan.live_bytes),)
    device = plan.fit.memory_bytes - margin
    least = device if allowed is None else min(allowed, device)
    context = plan.fit.context_bytes
    fit = Fit.of(plan.fit.device, memory_bytes=least, context_bytes=context, reserved_bytes=plan.needed_bytes)
    whose = "the budget" if least == allowed else plan.fit.device
    return (Limit("memory", "bytes", least, fit.total_bytes, whose, 0 if whose == "the budget" else margin),)


def _host(plan: Plan) -> tuple[Limit, ...]:
    """The memory of the host, if its size is known and something waits in it."""
    host = plan.host
    if host is None or not host.memory_bytes:
        return ()
    return (Limit(HOST, "bytes", host.memory_bytes, host.total_bytes, "the host"),)


def _cost(plan: Plan, budget: Budget) -> tuple[Limit, ...]:
    if budget.days is None and budget.dollars is None:
        return ()
    if plan.cost is None:
        raise BudgetError(f"this plan states no days and no dollars: {_missing(plan)}")
    found = [] if budget.days is None else [Limit("days", "days", budget.days, plan.cost.days)]
    if budget.dollars is not None:
        if plan.cost.dollars is None:
            raise BudgetError("this plan states no dollars: the datasheet of its device has no price")
        found.append(Limit("dollars", "dollars", budget.dollars, plan.cost.dollars))
    return tuple(found)


def _missing(plan: Plan) -> str:
    if plan.time is None:
        return "name the GPUs with --on, for example --on 8xh100-sxm"
    return "the recipe sets none of max_steps, max_tokens and max_epochs"
