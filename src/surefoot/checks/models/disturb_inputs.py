"""Runs a model again on a copy with one thing changed, and compares the outputs."""

from __future__ import annotations

from contextlib import suppress

import torch

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.captured_call import Captured
from surefoot.checks.engine.rerun import Again, change, inner, other, redrawn
from surefoot.checks.engine.scene import Scene, tensors
from surefoot.checks.facts.losses import Loss
from surefoot.checks.facts.models import LEAKS, Probe
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.models.batch_dimension import over_samples
from surefoot.checks.models.dropouts import Dropouts
from surefoot.checks.models.sample_mixing import Batches, first_that_runs, may_be_meant, mixing, relates, rows_stay
from surefoot.checks.models.unsaved_numbers import Numbers, idle_tensors, lost_numbers, lost_tables
from surefoot.checks.text.disturb_tokens import disturb_text
from surefoot.checks.text.padding import ends_of, leak_of_numbers
from surefoot.checks.text.token_targets import Reading, tokens_of
from surefoot.randomness import kept


def probe(
    scene: Scene,
    reading: Reading,
    losses: Losses,
    repeats: bool,
    first: Numbers,
    tables: tuple[str, ...],
    lost: tuple[str, ...],
    batches: Batches,
) -> Probe:
    """How a model reacts when its inputs are disturbed. Empty if it cannot be run again.

    `first` are the plain numbers that it had at first. `tables` and `lost` name tensors that no state_dict contains:
    drawn at random, and changed by training. `batches` says what batches consist of.
    """
    found = Probe(scene.name(reading.call.model), repeats_evaluation=repeats)
    again = reading.again
    if again is None:
        return found
    with scene.phases.deaf(), kept():
        with attempt(f"changing plain numbers of {found.model}"):
            found.counters = tuple(lost_numbers(again, first))
            found.drawn_tables = tuple(lost_tables(again, tables)) if tables else ()
        with attempt(f"changing tensors of {found.model} that are not saved"):
            found.idle_state = tuple(idle_tensors(again, lost))
        with attempt(f"disturbing the inputs of {found.model}"):
            place = next((n for n, each in enumerate(again.inputs) if each.dim() >= 1 and each.numel() > 1), None)
            if place is None:
                return found  # an input of one number says nothing about rows or columns
            with Dropouts(again.inputs) as dropouts:
                again()
            found.random_in_evaluation = dropouts.on
            base = again()
            if not base or not all(bool(torch.isfinite(each).all()) for each in base):
                return found
            if not all(torch.equal(a, b) for a, b in zip(base, again(), strict=True)):
                return found  # it draws random numbers: differences mean nothing
            _disturb(found, again, place, base, reading, losses, batches)
    return found


def _disturb(
    found: Probe,
    again: Again,
    place: int,
    base: list[torch.Tensor],
    reading: Reading,
    losses: Losses,
    batches: Batches,
) -> None:
    inputs = again.inputs[place]
    found.ignores_input = _ignores(again, place, base)
    targets = [each.loss.target_shape for each in losses.targets.given if each.loss.backward == again.call.backward]
    if (
        inputs.dim() >= 2
        and (inputs.shape[0],) in targets
        and inputs.shape[0] > 2
        and rows_stay(again, base, len(inputs))
    ):
        with suppress(RuntimeError, ValueError, IndexError):
            found.time_over_samples = over_samples(again, inputs.shape[0], drawn=batches.drawn(inputs.shape[0]))
    found.constant_input = _constant(again)
    found.padding = leak_of_numbers(again, place)
    turned = disturb_text(found, again, reading, losses)
    if reading.beside is None and reading.sequence is not None:
        found.past = found.present = 1.0  # one token at a time, with earlier ones in its state
    if turned:
        found.other_samples, _ = mixing(again, place, base, 1)
    if found.ignores_input or turned or inputs.shape[0] < 2:
        return
    found.relational = relates(again, place)
    mixed, _ = mixing(again, place, base, 0)
    sequence = reading.sequence
    untold = (sequence is None or sequence.shift is None) and inputs.dim() in (2, 3) and inputs.shape[1] > 1
    if mixed > LEAKS and untold and not _rows_are_samples(again, place):
        per_step = not targets or any(_size(each) == inputs.shape[0] * inputs.shape[1] for each in targets)
        if per_step or all(each[:1] != inputs.shape[:1] for each in targets):
            across, own = mixing(again, place, base, 1)
            if across < LEAKS < own and not _time_second(inputs):
                return  # the second dimension holds the samples
    taught = any(_is_taught(each, again.call.backward, len(inputs)) for each in losses.losses)
    taught |= found.model in batches.aimed
    texts = sequence is not None and sequence.shift is not None  # each row is a text with targets of its own
    taught |= texts
    found.drawn = batches.drawn(len(inputs)) or texts
    shares = [module for module, (_, shape) in losses.softmax_over.items() if shape[0] == inputs.shape[0]]
    known = found.drawn or (bool(shares) and taught)
    if mixed > LEAKS and may_be_meant(again, place, base, mixed, drawn=known, taught=taught):
        return
    found.other_samples = mixed
    found.softmax_over_batch = shares[-1] if shares else ""


def matters(scene: Scene, call: Captured, parameters: list[torch.Tensor]) -> dict[torch.Tensor, bool]:
    """Which parameters change an input of the loss when they are disturbed."""
    used = call.used_places()
    if not used:
        return {}
    with scene.phases.deaf(), kept(), attempt(f"moving parameters of {scene.name(call.model)}"):
        again = Again(scene, call)
        names: dict[torch.Tensor, str] = {each: name for name, each in inner(call.model).named_parameters()}
        copies = dict(again.model.named_parameters())
        base = again(training=True)
        return {each: _moves(again, copies[names[each]], base, used) for each in parameters[:64] if each in names}
    return {}


def _moves(again: Again, parameter: torch.Tensor, base: list[torch.Tensor], used: list[int]) -> bool:
    with torch.no_grad():
        before = parameter.clone()
        parameter += 0.1 + before.float().std(correction=0).to(before.dtype) * torch.randn_like(before)
        after = again(training=True)
        parameter.copy_(before)
    return any(change(base[n], after[n]) > 1e-6 for n in used if n < len(base))


def _ignores(again: Again, place: int, base: list[torch.Tensor]) -> bool:
    inputs = again.inputs[place]
    changed = {n: other(each, 12) for n, each in enumerate(again.inputs) if each.is_floating_point()}
    if inputs.is_floating_point():
        ways = [other(inputs, 11)]
    else:
        padded = ends_of(inputs) if inputs.dim() == 2 else None
        drawn = redrawn(inputs, inputs if padded is None else inputs[~padded], 11)
        ways = [drawn if padded is None else torch.where(padded, inputs, drawn), inputs.roll(1, 0)]
    after = first_that_runs(again, place, ways, changed)
    if after is None:
        return False
    used = again.call.used_places() if len(base) == len(again.call.outputs) else range(len(base))
    return all(change(base[n], after[n]) < 1e-6 for n in used)


def _constant(again: Again) -> bool:
    """Does every input hold a single number? Skips labels of models that compute their own loss."""
    labels = [value for name, value in again.call.kwargs.items() if "label" in name or "target" in name]
    given = [each for each in again.inputs if not any(each is label for label in tensors(labels))]
    large = [each for each in given if each.dim() >= 2 and each.shape[0] > 1 and each.numel() >= 16]
    return bool(large) and all(each.unique().numel() <= 1 for each in given)


def _is_taught(loss: Loss, backward: int, rows: int) -> bool:
    """Does a loss compare each of the samples with its own target, and do these targets differ?"""
    return (
        loss.backward == backward and loss.fixed_target and loss.constant is None and loss.target_shape[:1] == (rows,)
    )


def _rows_are_samples(again: Again, place: int) -> bool:
    """Do other inputs, or padding at the ends of rows, show that the first dimension holds the samples?"""
    inputs = again.inputs[place]
    if any(each.dim() == 1 and len(each) == inputs.shape[0] != inputs.shape[1] for each in again.inputs):
        return True
    tokens = tokens_of(again.call)
    return tokens is not None and ends_of(tokens) is not None and ends_of(tokens.t()) is None


def _time_second(inputs: torch.Tensor) -> bool:
    """Do numbers change little from step to step along the second dimension, but not along the first?"""
    if inputs.dim() != 3 or not inputs.is_floating_point() or min(inputs.shape[:2]) < 4:
        return False
    first, second = (float(inputs.diff(dim=dim).square().mean()) for dim in (0, 1))
    return second < first / 2 and first > float(inputs.var((0, 1)).mean())


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size
