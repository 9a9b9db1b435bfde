"""plan: what a recipe's step will take, found by running it on tensors that have no memory."""

import dataclasses
from collections.abc import Iterator

from torch.nn import Embedding

from surefoot.costs.conventions import CONVENTIONS, flops_per_token
from surefoot.costs.unroll import Irregular
from surefoot.gpu.target import CONTEXT_BYTES, CPU, Gpu, targets
from surefoot.recipe import Recipe
from surefoot.records.plan import Fit, Plan
from surefoot.reuse import FEWEST, run_few
from surefoot.trace import Trace, Tracing


def plan(recipe: Recipe, *, on: str | None = None, reuse: bool = True) -> Plan:
    """Runs two symbolic steps: the first makes the optimizer's state, the second is what all others are like.

    `on` names what the step is planned for: `h100-sxm`, or `8xh100-sxm` for one of 8 ranks, or `4xcpu`; without it,
    the plan is for this machine's CPU.
    Of many alike blocks only a few are run, where that can be proved to give the same; `reuse=False` runs them all.
    """
    ranks, target = targets(on or CPU)
    data = recipe.data()
    traced = _traced(dataclasses.replace(recipe, data=lambda: data), target, ranks, reuse)
    tokens = recipe.global_batch_tokens or traced.step.layout.data_ranks * recipe.tokens_per_step
    return Plan(
        recipe=recipe.name,
        about=recipe.about,
        knobs=dict(recipe.knobs),
        parameters=traced.step.parameter_count,
        ranks=ranks,
        layout=str(traced.step.layout) if ranks > 1 else "",
        tokens_per_step=tokens,
        micro_batches=traced.step.micro_batches,
        steps=recipe.steps(),
        first=traced.first,
        steady=traced.steady,
        init=traced.init,
        evaluate=traced.evaluate,
        resume=traced.resume,
        state_bytes=traced.state_bytes,
        allocated_bytes=traced.allocated_bytes,
        reserved_bytes=traced.reserved_bytes,
        fit=None if target is None else _fit(target, traced.reserved_bytes),
        flops_per_token=_flops_per_token(traced, tokens),
        blocks=traced.blocks,
        assumptions=(
            *(target.policies if target else ()),
            *(f"{note} ({times} times)" for note, times in traced.assumed.items()),
            *_missing(traced),
        ),
        choices=(*traced.choices, *_compiled(recipe)),
    )


def _traced(recipe: Recipe, target: Gpu | None, ranks: int, reuse: bool) -> Trace:
    """From a few blocks where the model has many that are alike and this can be proved to be enough, else in full."""
    blocks = ""
    with Tracing(recipe, target, ranks=ranks) as tracing:
        made = tracing.build(fewest=FEWEST if reuse else None)
        repeats = tracing.repeats
        if not repeats:
            tracing.run(made)
            return made
        try:
            run_few(tracing, repeats, made)
            return made
        except Irregular as why:
            blocks = f"{repeats} all run: {why}"
    with Tracing(recipe, target, ranks=ranks) as tracing:
        made = tracing.build()
        tracing.run(made)
        return dataclasses.replace(made, blocks=blocks)


def _fit(target: Gpu, reserved: dict[str, int]) -> Fit:
    memory = {"memory_bytes": target.memory_bytes, "context_bytes": CONTEXT_BYTES}
    return Fit.of(target.name, **memory, reserved_bytes=reserved)


def _missing(traced: Trace) -> Iterator[str]:
    """What a plan leaves out, since nothing says how much it is."""
    if traced.unknown:
        yield f"no workspace inside {', '.join(sorted(traced.unknown))}: the library chooses it on the GPU"
    if traced.too_large:
        yield f"no workspace inside {traced.too_large} kernels too large to try"


def _flops_per_token(traced: Trace, tokens_per_step: int) -> dict[str, float]:
    """This plan's own count, and the conventions; those that need attention only where attention was seen.

    What one rank counts is the part of its tensor-parallel group that all others of it have too.
    """
    tally, attention, modules = traced.steady.tally, traced.attention, traced.step.model.modules()
    layout = traced.step.layout
    counted = layout.ranks * (tally.total("flops") - tally.total("flops/recompute")) / tokens_per_step
    shape = {
        "parameters": traced.step.parameter_count,
        "embedding": max((each.weight.numel() for each in modules if isinstance(each, Embedding)), default=0),
        "attention_width": layout.tp * sum(width for width, _ in attention) // traced.step.micro_batches,
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
