"""The plan of a recipe: its step traced on fake tensors, with its time and its cost on a device."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sized
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch.nn import Embedding

from surefoot.costs.conventions import CONVENTIONS, flops_per_token
from surefoot.costs.from_scratch import beside_scratch
from surefoot.costs.interval import COMPILED_MEMORY, REHEARSED, compiled_bytes, with_interval
from surefoot.costs.rehearsed import rehearsed_time
from surefoot.costs.roofline import ceilings_of, step_time
from surefoot.costs.run_cost import run_cost
from surefoot.costs.time_constants import constants
from surefoot.costs.time_on_cluster import time_on
from surefoot.costs.unroll import Irregular
from surefoot.data.batches import batches_in
from surefoot.data.sizes import sizes_of
from surefoot.errors import WorldError
from surefoot.hardware import Cluster, Datasheet, cluster
from surefoot.hardware.here import HERE, here
from surefoot.meters.memory_book import Chapter
from surefoot.meters.memory_snapshot import write_snapshot
from surefoot.planning.fake_step import Trace, Tracing
from surefoot.planning.later_steps import LaterFailed, Looks
from surefoot.planning.mfu import FORMATS
from surefoot.planning.repeated_blocks import find_repeats
from surefoot.planning.timing.loader_pace import loader_pace
from surefoot.planning.timing.rehearse import rehearse
from surefoot.planning.unrolled_trace import FEWEST, run_few
from surefoot.recipe.build import build_data, build_evaluation, with_epoch
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.sources import has_state
from surefoot.records.plan import LEFT_OUT, NO_RESUME, Fit, HostFit, LoaderPace, Plan, RunCost, needed_bytes
from surefoot.records.step_time import StepTime
from surefoot.techniques.adapters import base_parameter_count
from surefoot.techniques.mesh import layout_of, with_global_batch
from surefoot.units import between, bytes_text
from surefoot.world.gpu.target import CONTEXT_BYTES, CPU, Gpu, targets

IN_FP8 = "the interval comes from runs that do not multiply in FP8; those that do are in docs/measured/public-runs.md"


def plan_recipe(
    recipe: Recipe,
    *,
    on: str | None = None,
    reuse: bool = True,
    measure: bool = False,
    snapshot: str | None = None,
    resume: bool = True,
    loader: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """Runs two symbolic steps: the first creates the optimizer state, the second stands for all others.

    The arguments are those of `surefoot.plan`.
    """
    ranks, target = targets(on or CPU)
    if measure and on is not None:
        raise WorldError("--measure times this machine and --on plans for another: use only one of them")
    sheet = here() if measure or on == HERE else None
    recipe = with_global_batch(recipe, layout_of(recipe, ranks=ranks))
    data = build_data(recipe)
    recipe = with_epoch(recipe, data)
    # Data is built once, since it may take minutes; a source with a state is built for each look, to begin anew.
    known = recipe if has_state(data) else dataclasses.replace(recipe, data=lambda: data)
    sizes = sizes_of(known, ranks=layout_of(recipe, ranks=ranks).data_ranks)
    largest = sizes.places if sizes is not None and sizes.differ else []
    what: dict[str, Any] = {"work": bool(target or sheet), "script": measure, "resumes": resume}
    tracing = partial(Tracing, known, target, ranks=ranks, largest=largest, **what)
    chapters: list[Chapter] = []
    traced = _traced(
        tracing if snapshot is None else partial(_kept, tracing, chapters),
        reuse=reuse and not measure and recipe.step is None and recipe.layers_every is None,
    )
    if snapshot is not None:
        write_snapshot(
            Path(snapshot), _named(chapters, built_on_host=bool(traced.host_bytes), steady=traced.later.highest)
        )
    tokens = recipe.tokens_per_step
    seconds = cost = None
    scratch = ""
    if measure and sheet is not None:
        seconds = _rehearsed(recipe, traced, sheet, clock)
    elif sheet is not None:
        seconds = _step_time(recipe, traced, Cluster(sheet))
    elif target is not None and _can_be_timed((machines := cluster(on or CPU)).device):
        seconds = _step_time(recipe, traced, machines)
        cost = _cost(recipe, traced, machines, seconds, tokens)
        scratch = _beside_scratch(recipe, traced, machines, cost)
    compiled = None
    if recipe.compile != "off":
        again = recipe.compile == "whole" and recipe.recompute != "none"
        compiled = compiled_bytes(_written_bytes(traced, target), whole_recomputed=again)
    return Plan(
        recipe=recipe.name,
        about=recipe.about,
        knobs=dict(recipe.knobs),
        parameters=traced.step.parameter_count,
        ranks=ranks,
        layout=str(traced.step.layout) if ranks > 1 else "",
        tokens_per_step=tokens,
        unit=recipe.unit,
        micro_batches=traced.step.micro_batches,
        steps=recipe.steps(),
        samples_per_step=recipe.micro_batch_size * traced.step.micro_batches,
        loader=_loader(known, traced, clock) if loader and seconds is not None else None,
        first=dataclasses.replace(traced.first, work=()),
        steady=traced.steady,
        init=traced.init,
        evaluate=dataclasses.replace(traced.evaluate, work=()),
        resume=traced.resume,
        state_bytes=traced.state_bytes,
        checkpoint_bytes=traced.checkpoint_bytes,
        allocated_bytes=traced.allocated_bytes,
        reserved_bytes=traced.reserved_bytes,
        fit=None if target is None else _fit(target, needed_bytes(traced.reserved_bytes, compiled)),
        host=_host(traced, cluster(on)) if target is not None and on is not None else None,
        time=seconds,
        cost=cost,
        flops_per_token=_flops_per_token(traced, tokens),
        blocks=traced.blocks,
        assumptions=(
            *([traced.without] if traced.without else []),
            *([NO_RESUME + traced.no_resume] if traced.no_resume else []),
            *traced.later.told(steps=recipe.steps()),
            *(target.policies if target else ()),
            *([sizes.said] if sizes is not None and sizes.differ else []),
            *(f"{note} ({times} times)" for note, times in traced.assumed.items()),
            *_missing(traced),
        ),
        compiled_bytes=compiled,
        choices=(
            *traced.choices,
            *_measured(recipe, traced),
            *_compiled(recipe, _written_bytes(traced, target), compiled),
            *([scratch] if scratch else []),
        ),
    )


def _traced(tracing_anew: Callable[..., Tracing], *, reuse: bool) -> Trace:
    """Traces a few blocks if the model has many that are alike and this is proved to be enough; else all of them."""
    blocks = ""
    if reuse:
        with tracing_anew() as tracing:
            repeats = find_repeats(tracing.model, fewest=FEWEST)
            try:
                if repeats:
                    return run_few(tracing, repeats)
            except Irregular as why:
                blocks = f"{repeats} all run: {why}"
    return dataclasses.replace(_with_later_steps(tracing_anew), blocks=blocks)


def _with_later_steps(tracing_anew: Callable[..., Tracing]) -> Trace:
    """Traces all blocks, and later steps if they may differ: less far, if a later step fails."""
    failed = ""
    for looks in (Looks.ALL, Looks.IN_A_ROW, Looks.NOT):
        try:
            with tracing_anew(looks=looks) as tracing:
                made = tracing.traced()
        except LaterFailed as error:
            failed = f"{type(error.__cause__).__name__} in a later one"
            continue
        made.later.unplanned = failed or ("--measure plans two steps" if tracing.looks is Looks.NOT else "")
        return made
    raise AssertionError("a plan of two steps has no later one")


def _kept(tracing_anew: Callable[..., Tracing], chapters: list[Chapter], **how: Any) -> Tracing:
    """A tracing that keeps every allocation in `chapters`. Those of an earlier attempt are dropped."""
    tracing = tracing_anew(**how)
    chapters.clear()
    tracing.books.memory.book.chapters = chapters
    return tracing


def _named(chapters: list[Chapter], *, built_on_host: bool, steady: int) -> list[tuple[str, Chapter]]:
    """The chapters of a trace that are about the device. It closes its books twice after building.

    `steady` is the place of the steady step after the first one.
    """
    built, left, first, *others = chapters
    before = left if built_on_host else built
    return [("building", before), ("first step", first), ("steady step", others[steady])]


def _can_be_timed(sheet: Datasheet) -> bool:
    return bool(sheet.memory_bandwidth and sheet.dense_flops)


def _peak(sheet: Datasheet, recipe: Recipe) -> float:
    """The peak for MFU: the dense peak for the recipe's precision; for `here`, the speed that products reach."""
    peaks = (sheet.reached_flops or {}) if sheet.name == HERE else sheet.dense_flops
    return peaks.get(_format(recipe), 0.0)


def _format(recipe: Recipe) -> str:
    return FORMATS.get(recipe.precision, "fp32")


def _flops(traced: Trace) -> float:
    """The FLOPs of a steady step, without recomputation."""
    tally = traced.steady.tally
    return tally.total("flops") - tally.total("flops/recompute")


def _rehearsed(recipe: Recipe, traced: Trace, sheet: Datasheet, clock: Callable[[], float]) -> StepTime:
    """The time of a steady step on this machine: times each distinct call while the step's tensors are live."""
    needed = traced.steady.peak.peak_bytes
    if needed > sheet.memory_bytes:
        raise WorldError(
            f"a step takes {bytes_text(needed)} and this machine has {bytes_text(sheet.memory_bytes)}: --measure "
            "cannot time it; use --on here, which predicts its time from measured speeds"
        )
    timed = rehearse(traced.script, clock=clock)
    taken = rehearsed_time(timed, sheet.call_seconds or {}, flops=_flops(traced), peak_flops=_peak(sheet, recipe))
    return with_interval(taken, REHEARSED)


def _step_time(recipe: Recipe, traced: Trace, machines: Cluster) -> StepTime:
    """The time of a steady step."""
    sizes = dict(reversed(traced.step.layout.sizes.items()))  # innermost first
    time = time_on(machines, traced.steady, sizes, peak_flops=_peak(machines.device, recipe))
    if not recipe.multiplies_in_fp8:
        return time
    return dataclasses.replace(time, assumptions=(*time.assumptions, IN_FP8))


def _loader(recipe: Recipe, traced: Trace, clock: Callable[[], float]) -> LoaderPace:
    layout = traced.step.layout
    return loader_pace(recipe, rank=layout.data_rank, ranks=layout.data_ranks, clock=clock)


def _cost(recipe: Recipe, traced: Trace, machines: Cluster, time: StepTime, tokens: int) -> RunCost | None:
    """The cost of the whole run, if the recipe says how many steps it has."""
    steps = recipe.steps()
    if steps is None:
        return None
    evaluations = steps // recipe.evaluate_every if recipe.evaluation and recipe.evaluate_every else 0
    batches = recipe.evaluation_batches or (_whole_evaluation(recipe) if evaluations else 0)
    per_batch = step_time(traced.evaluate.work, ceilings_of(machines.device)).seconds / traced.step.micro_batches
    return run_cost(
        machines,
        steps=steps,
        tokens_per_step=tokens,
        step_seconds=time.seconds,
        step_interval=time.interval,
        evaluation_seconds=evaluations * batches * per_batch,
    )


def _beside_scratch(recipe: Recipe, traced: Trace, machines: Cluster, cost: RunCost | None) -> str:
    """The run beside training its model from scratch, if it starts from weights and counts tokens."""
    if cost is None or recipe.init_from is None or recipe.unit != "token":
        return ""
    parameters = base_parameter_count(traced.step.model)
    return beside_scratch(cost, machines, parameters=parameters, number_format=_format(recipe))


def _whole_evaluation(recipe: Recipe) -> int:
    """The micro-batches that hold each sample of the evaluation data once."""
    return batches_in(len(cast(Sized, build_evaluation(recipe))), recipe.micro_batch_size)


def _fit(target: Gpu, reserved: dict[str, int]) -> Fit:
    memory = {"memory_bytes": target.memory_bytes, "context_bytes": CONTEXT_BYTES}
    return Fit.of(target.name, **memory, reserved_bytes=reserved)


def _host(traced: Trace, machines: Cluster) -> HostFit | None:
    """What the ranks of a node keep in host memory. None if that is nothing."""
    held = max(int(usage.tally.total("host")) for usage in (traced.first, traced.steady))
    ranks = min(machines.count, machines.per_node)
    return HostFit(held, ranks, machines.host_bytes) if held else None


def _missing(traced: Trace) -> Iterator[str]:
    """What a plan leaves out: host memory, and workspaces of unknown size."""
    if traced.host_bytes:
        yield f"the model is built in host memory, {bytes_text(traced.host_bytes)} for each rank of a node"
    if traced.unknown:
        yield f"{LEFT_OUT} {', '.join(sorted(traced.unknown))}: the library chooses it on the GPU"
    if traced.too_large:
        yield f"{LEFT_OUT} {traced.too_large} kernels too large to try"


def _flops_per_token(traced: Trace, tokens_per_step: int) -> dict[str, float]:
    """This plan's own count and the conventions. Those with an attention term need a model with attention.

    Every rank of a tensor-parallel group counts an equal part of the group's FLOPs.
    """
    tally, attention, modules = traced.steady.tally, traced.attention, traced.step.model.modules()
    layout, context = traced.step.layout, traced.step.context
    width = layout.tp * sum(width for width, _ in attention) // traced.step.micro_batches
    counted = layout.ranks * (tally.total("flops") - tally.total("flops/recompute")) / tokens_per_step
    shape = {
        "parameters": traced.step.parameter_count,
        "embedding": max((each.weight.numel() for each in modules if isinstance(each, Embedding)), default=0),
        "attention_width": width if context is None else context.whole_width(width),
        "context": max((keys for _, keys in attention), default=0),
    }
    names = [name for name, rule in CONVENTIONS.items() if attention or not rule.attention]
    return {"counted": counted, **{name: flops_per_token(name, **shape) for name in names}}


def _measured(recipe: Recipe, traced: Trace) -> list[str]:
    """The note of a plan on the steps whose layers are measured."""
    if traced.layers is None:
        return []
    most, usual = traced.layers.peak.peak_bytes, traced.steady.peak.peak_bytes
    return [
        f"layers_every={recipe.layers_every}: a step that measures layers takes {bytes_text(most)} at its peak, "
        f"{bytes_text(max(0, most - usual))} more than others"
    ]


def _written_bytes(traced: Trace, target: Gpu | None) -> int:
    """What the step as written takes: reserved on a GPU, else live at the peak."""
    return traced.reserved_bytes["classic"] if target else traced.steady.peak.peak_bytes


def _compiled(recipe: Recipe, written_bytes: int, ends: tuple[int, int] | None) -> list[str]:
    """The note of a plan on a step that will be compiled."""
    if ends is None:
        return []
    again = recipe.compile == "whole" and recipe.recompute != "none"
    more = (
        "; with recomputation, compile=whole has taken an eighth more memory, compile=blocks has not" if again else ""
    )
    told = between(*ends, bytes_text)
    return [
        f"compile={recipe.compile}: the seconds are those of fused kernels, the memory is that of the step as written, "
        f"{bytes_text(written_bytes)}; compiled, it takes {told} in four of five cases "
        f"({constants().spreads[COMPILED_MEMORY].of}){more}"
    ]
