"""plan: what a recipe's step will take, found by running it on tensors that have no memory."""

import dataclasses
from collections.abc import Iterator

from torch.nn import Embedding

from surefoot.costs.conventions import CONVENTIONS, flops_per_token
from surefoot.costs.roofline import ceilings_of, step_time
from surefoot.costs.run_cost import run_cost
from surefoot.costs.unroll import Irregular
from surefoot.gpu.target import CONTEXT_BYTES, Gpu, gpu
from surefoot.hardware import Cluster, Datasheet, cluster
from surefoot.recipe import Recipe
from surefoot.records.plan import Fit, Plan
from surefoot.records.run_cost import RunCost
from surefoot.records.step_time import StepTime
from surefoot.repeats import find_repeats
from surefoot.reuse import FEWEST, run_few
from surefoot.trace import Trace, Tracing


def plan(recipe: Recipe, *, on: str | None = None, reuse: bool = True) -> Plan:
    """Runs two symbolic steps: the first makes the optimizer's state, the second is what all others are like.

    `on` names the GPU that the step is planned for, such as `h100-sxm`; without it, the plan is for this machine's CPU.
    Of many alike blocks only a few are run, where that can be proved to give the same; `reuse=False` runs them all.
    """
    machines = None if on is None else cluster(on)
    target = None if on is None else gpu(on)
    data = recipe.data()
    traced = _traced(dataclasses.replace(recipe, data=lambda: data), target, reuse)
    time = cost = None
    if machines is not None and _can_be_timed(machines.device):
        ceilings = ceilings_of(machines.device)
        flops = traced.steady.tally.total("flops") - traced.steady.tally.total("flops/recompute")
        time = step_time(traced.steady.work, ceilings, flops=flops, peak_flops=_peak(machines.device, recipe))
        cost = _cost(recipe, machines, time, step_time(traced.evaluate.work, ceilings).seconds)
    return Plan(
        recipe=recipe.name,
        about=recipe.about,
        knobs=dict(recipe.knobs),
        parameters=traced.step.parameter_count,
        tokens_per_step=recipe.tokens_per_step,
        micro_batches=recipe.micro_batches(),
        steps=recipe.steps(),
        first=dataclasses.replace(traced.first, work=()),
        steady=traced.steady,
        init=traced.init,
        evaluate=dataclasses.replace(traced.evaluate, work=()),
        resume=traced.resume,
        state_bytes=traced.state_bytes,
        allocated_bytes=traced.allocated_bytes,
        reserved_bytes=traced.reserved_bytes,
        fit=None if target is None else _fit(target, traced.reserved_bytes),
        time=time,
        cost=cost,
        flops_per_token=_flops_per_token(recipe, traced),
        blocks=traced.blocks,
        assumptions=(
            *(target.policies if target else ()),
            *(f"{note} ({times} times)" for note, times in traced.assumed.items()),
            *_missing(traced),
        ),
        choices=(*traced.step.choices(), *_compiled(recipe)),
    )


def _traced(recipe: Recipe, target: Gpu | None, reuse: bool) -> Trace:
    """From a few blocks where the model has many that are alike and this can be proved to be enough, else in full."""
    blocks = ""
    with Tracing(recipe, target, work=target is not None) as tracing:
        made = tracing.build()
        repeats = find_repeats(made.step.model, fewest=FEWEST) if reuse else None
        if not repeats:
            tracing.run(made)
            return made
        try:
            run_few(tracing, repeats, made)
            return made
        except Irregular as why:
            blocks = f"{repeats} all run: {why}"
    with Tracing(recipe, target, work=target is not None) as tracing:
        made = tracing.build()
        tracing.run(made)
        return dataclasses.replace(made, blocks=blocks)


def _can_be_timed(sheet: Datasheet) -> bool:
    return bool(sheet.memory_bandwidth and sheet.dense_flops)


def _peak(sheet: Datasheet, recipe: Recipe) -> float:
    """What FLOPs alone would be divided by: the dense peak for the recipe's precision."""
    formats = {"bf16-mixed": "bf16", "16-mixed": "fp16", "bf16-true": "bf16"}
    return sheet.dense_flops.get(formats.get(recipe.precision, "fp32"), 0.0)


def _cost(recipe: Recipe, machines: Cluster, time: StepTime, evaluation_seconds: float) -> RunCost | None:
    """Of the whole run, where its number of steps is known; an evaluation takes as many batches as were planned."""
    steps = recipe.steps()
    if steps is None:
        return None
    evaluations = steps // recipe.evaluate_every if recipe.evaluation and recipe.evaluate_every else 0
    per_batch = evaluation_seconds / recipe.micro_batches()
    return run_cost(
        machines,
        steps=steps,
        tokens_per_step=recipe.tokens_per_step,
        step_seconds=time.seconds,
        evaluation_seconds=evaluations * recipe.evaluation_batches * per_batch,
    )


def _fit(target: Gpu, reserved: dict[str, int]) -> Fit:
    memory = {"memory_bytes": target.memory_bytes, "context_bytes": CONTEXT_BYTES}
    return Fit.of(target.name, **memory, reserved_bytes=reserved)


def _missing(traced: Trace) -> Iterator[str]:
    """What a plan leaves out, since nothing says how much it is."""
    if traced.unknown:
        yield f"no workspace inside {', '.join(sorted(traced.unknown))}: the library chooses it on the GPU"
    if traced.too_large:
        yield f"no workspace inside {traced.too_large} kernels too large to try"


def _flops_per_token(recipe: Recipe, traced: Trace) -> dict[str, float]:
    """This plan's own count, and the conventions; those that need attention only where attention was seen."""
    tally, attention, modules = traced.steady.tally, traced.attention, traced.step.model.modules()
    counted = (tally.total("flops") - tally.total("flops/recompute")) / recipe.tokens_per_step
    shape = {
        "parameters": traced.step.parameter_count,
        "embedding": max((each.weight.numel() for each in modules if isinstance(each, Embedding)), default=0),
        "attention_width": sum(width for width, _ in attention) // recipe.micro_batches(),
        "context": max((keys for _, keys in attention), default=0),
    }
    names = [name for name, rule in CONVENTIONS.items() if attention or not rule.attention]
    return {"counted": counted, **{name: flops_per_token(name, **shape) for name in names}}


def _compiled(recipe: Recipe) -> list[str]:
    """What a plan says of a step that will be compiled."""
    if recipe.compile == "off":
        return []
    again = recipe.compile == "whole" and recipe.recompute != "none"
    more = "; recomputing, a model compiled whole has taken an eighth more, with compiled blocks not" if again else ""
    return [f"compile={recipe.compile}: this is the step as it was written, see docs/plan.md{more}"]
