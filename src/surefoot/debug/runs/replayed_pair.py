"""Replays two runs side by side and names what differs first: batch, parameters, an operation or the update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from surefoot.checkpoint.checkpoint import Checkpoint
from surefoot.checkpoint.outline import leaves
from surefoot.checkpoint.state import state_of
from surefoot.data.content import content_hash
from surefoot.debug.runs.trace import Tracer, largest_difference
from surefoot.errors import NonFinite, RunError
from surefoot.records.compared import MOST_LISTED, Cause, PartedAt, Replayed, Unlike
from surefoot.records.trace import Operation, Parting, Trace, parting
from surefoot.step import Step
from surefoot.training.replay import Replay, buffers_kept, is_as_logged, same_bits, sound_checkpoints
from surefoot.units import counted

Pair = tuple[Replay, Replay]


def parted(pair: Pair, last: int) -> Replayed:
    """Replays both runs up to a step, and looks into the first step that one of them takes otherwise."""
    is_same = _start_alike(pair, last)
    from_step, as_logged = pair[0].started_at, [True, True]

    def advance_to(number: int) -> None:
        for which, each in enumerate(pair):
            as_logged[which] &= not each.advance_to(number)

    while is_same and pair[0].step.number < last - 1:
        advance_to(pair[0].step.number + 1)
        if next(_other_leaves(pair), None) is not None:
            parted_in = pair[0].step.number
            for each in pair:
                each.again()
            advance_to(parted_in - 1)
            break
    step = pair[0].step.number + 1
    before = _changed(pair)
    other_batch = _other_batch(pair)
    traces = [_trace_of(each, step)[0] for each in pair]
    at = _placed(pair, parting(*traces), traces)
    rates = [f"{each.what} {each.first} and {each.second}" for each in _other_rates(pair)]
    for which, each in enumerate(pair):
        as_logged[which] &= _taken_as_logged(each)
    after = list(_other_leaves(pair))
    cause, said = _cause(before, other_batch, at, after, rates)
    return Replayed(step, from_step, cause, said, at, (as_logged[0], as_logged[1]))


def _start_alike(pair: Pair, last: int) -> bool:
    """Starts both at the newest checkpoint at which their states are the same. Returns whether there is one."""
    there: list[dict[int, Checkpoint]] = [
        {each.step: each for each in reversed(list(sound_checkpoints(replay.run, before=last)))} for replay in pair
    ]
    places = sorted(there[0].keys() & there[1].keys(), reverse=True)
    for place in (*places, None):
        for replay, found in zip(pair, there, strict=True):
            replay.start(None if place is None else found[place])
        _refuse_other_models(pair)
        if next(_other_leaves(pair), None) is None:
            return True
    return False


def _refuse_other_models(pair: Pair) -> None:
    shapes = [{name: tuple(each.shape) for name, each in replay.step.model.named_parameters()} for replay in pair]
    if shapes[0] != shapes[1]:
        name = next(iter(sorted(set(shapes[0].items()) ^ set(shapes[1].items()))))[0]
        raise RunError(
            f"the models of {pair[0].run.path} and {pair[1].run.path} have other shapes: `{name}` is "
            f"{' and '.join(str(each.get(name, 'missing')) for each in shapes)}; compare runs of the same model"
        )


def _other_leaves(pair: Pair) -> Iterator[tuple[str, Any, Any]]:
    """The tensors of model and optimizer that are not the same bit for bit, parameters first."""
    one, other = (dict(leaves({"model": s["model"], "optimizer": s["optimizer"]["state"]})) for s in _states(pair))
    for place in (*one, *(other.keys() - one.keys())):
        here, there = one.get(place), other.get(place)
        if not same_bits(here, there):
            yield ".".join(map(str, place[1:])), here, there


def _states(pair: Pair) -> list[Any]:
    return [state_of(each.step) for each in pair]


def _changed(pair: Pair) -> str:
    """Which parameters and other state differ before the step, in words; empty if none does."""
    found = list(_other_leaves(pair))
    return "" if not found else f"{_named(found)} before the step"


def _named(found: list[tuple[str, Any, Any]]) -> str:
    """The first tensor that differs, by how much, and how many others do."""
    name, here, there = found[0]
    apart = largest_difference([here], [there]) if isinstance(here, torch.Tensor) and there is not None else None
    by = "" if apart is None else f" by at most {apart[0]:.3g}"
    others = f", and {counted(len(found) - 1, 'other tensor')}" if len(found) > 1 else ""
    return f"`{name}` differs{by}{others}"


def _other_batch(pair: Pair) -> str:
    """How the batches differ; empty if they hold the same samples with the same values."""
    taken = [[number for numbers, _ in replay.batches() for number in numbers] for replay in pair]
    if taken[0] != taken[1]:
        place = next((at for at, (a, b) in enumerate(zip(*taken, strict=False)) if a != b), 0)
        return (
            f"the batches hold other samples: sample {place + 1} of the step is {taken[0][place]} and {taken[1][place]}"
        )
    if len({len(replay.batches()) for replay in pair}) > 1:
        return ""
    for (numbers, here), (_, there) in zip(*(replay.batches() for replay in pair), strict=True):
        if content_hash(here) != content_hash(there):
            listed = ", ".join(map(str, numbers[:MOST_LISTED]))
            return f"the same samples have other values, in the micro-batch of samples {listed}, ..."
    return ""


def _trace_of(replay: Replay, step: int, *, keep: int | None = None) -> tuple[Trace, list[torch.Tensor]]:
    """The forward and the backward of the next step, which is not taken, and the results of the operation to keep."""
    if replay.step.is_own:
        return _trace_of_own(replay, step, keep=keep)
    made = replay.step
    with buffers_kept(made), Tracer(keep=keep) as tracer:
        tracer.phases.find(made.model)
        for micro_batch, (_, batch) in enumerate(replay.batches()):
            loss, count = made.loss_of(micro_batch, batch)
            made.scaler.scale(loss / count).backward()
        trace = tracer.end_step(step)
    made.optimizer.zero_grad(set_to_none=True)
    return trace, tracer.kept


def _trace_of_own(replay: Replay, step: int, *, keep: int | None) -> tuple[Trace, list[torch.Tensor]]:
    """A step that the recipe wrote is taken whole, and the replay goes back to before it."""
    with Tracer(keep=keep) as tracer:
        tracer.phases.find(replay.step.model)
        replay.advance()
        trace = tracer.end_step(step)
    replay.again()
    replay.advance_to(step - 1)
    return trace, tracer.kept


def _placed(pair: Pair, found: Parting | None, traces: list[Trace]) -> PartedAt | None:
    """Where the traces part, with the largest difference: both steps run again to keep the values of that place."""
    if found is None or found.first is None or found.second is None:
        return None
    here, there = traces[0].operations[found.first], traces[1].operations[found.second]
    values = [
        _trace_of(replay, traces[0].step, keep=place)[1]
        for replay, place in zip(pair, (found.first, found.second), strict=True)
    ]
    only = (tuple(map(operation_text, each)) for each in (found.only_first, found.only_second))
    return PartedAt.of(here, there, largest_difference(*values), *only)


def operation_text(operation: Operation) -> str:
    """An operation with its module and line."""
    where = f" in `{operation.module}`" if operation.module else ""
    return f"`{operation.name}`{where}" + (f" ({operation.line})" if operation.line else "")


def _taken_as_logged(replay: Replay) -> bool:
    """Takes the next step. Returns whether its numbers are those of the log."""
    number = replay.step.number + 1
    try:
        found = replay.advance()
    except NonFinite as error:
        replay.step.optimizer.zero_grad(set_to_none=True)
        found = error.loss, error.grad_norm
    return is_as_logged(replay.logged.get(number), *found)


def _cause(
    before: str, other_batch: str, at: PartedAt | None, after: list[tuple[str, Any, Any]], rates: list[str]
) -> tuple[Cause, str]:
    if other_batch:
        return "batch", other_batch + (f"; also, {before}" if before else "")
    if before:
        return "parameters", before
    if at is not None:
        return "arithmetic", "the batch and the parameters before the step are the same"
    if after:
        how = f"; the optimizers differ: {', '.join(rates)}" if rates else ""
        return "update", f"batch, parameters and gradients are the same, and after the update {_named(after)}{how}"
    return "none", (
        "replayed here, both give the same numbers: what made them differ is not in the recipe, the data or the state, "
        "but in where they ran: layout, threads, machine, versions, or an operator that is not deterministic"
    )


def _other_rates(pair: Pair) -> Iterator[Unlike]:
    """Settings of the optimizers that differ before the step."""
    groups = [_groups(replay.step) for replay in pair]
    if len(groups[0]) != len(groups[1]):
        yield Unlike("groups of parameters", str(len(groups[0])), str(len(groups[1])))
    for here, there in zip(*groups, strict=False):
        for name in here:
            if name != "params" and here[name] != there.get(name):
                yield Unlike(name, str(here[name]), str(there.get(name, "not given")))


def _groups(step: Step) -> list[dict[str, Any]]:
    return [group for optimizer in step.optimizers for group in optimizer.param_groups]
