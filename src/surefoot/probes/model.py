"""Model probes: a training forward is run again on a copy with one thing changed, and the outputs are compared."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from surefoot.checks.evidence import Probe, Sequence
from surefoot.probes.tokens import align, best_shift, mask_of, tokens_of
from surefoot.randomness import kept, seed_all
from surefoot.trees import map_tensors
from surefoot.witness.calls import Captured
from surefoot.witness.losses import Losses
from surefoot.witness.scene import Scene, tensors

CHANGED = 1e-3
"""Outputs that differ by more than this share of their standard deviation have changed."""
MOST_BYTES = 1 << 31
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


class Again:
    """A copy of a model, and the call that it is given again and again."""

    def __init__(self, scene: Scene, call: Captured) -> None:
        self.scene, self.call = scene, call
        self.model = copied(call.model)
        self.inputs = list(tensors((call.args, call.kwargs)))

    def __call__(self, changed: dict[int, torch.Tensor] | None = None, *, training: bool = False) -> list[torch.Tensor]:
        """The floating-point outputs; inputs are replaced by their place, random numbers are always the same."""
        new = changed or {}
        places = iter(range(len(self.inputs)))
        args, kwargs = map_tensors(lambda each: new.get(next(places), each).clone(), (self.call.args, self.call.kwargs))
        with self._as_called():
            self.model.train(training)
            seed_all(0)
            output = self.model(*args, **kwargs)
        return [each.detach().float() for each in tensors(output) if each.is_floating_point()]

    @contextmanager
    def _as_called(self) -> Iterator[None]:
        device, dtype = self.call.autocast or ("cpu", torch.bfloat16)
        with torch.no_grad(), torch.autocast(device, dtype, enabled=self.call.autocast is not None):
            yield


def copied(model: nn.Module) -> nn.Module:
    """A copy that shares nothing with the model."""
    model = getattr(model, "module", model) if type(model).__name__ == "DistributedDataParallel" else model
    for module in model.modules():
        if not isinstance(vars(module).get("forward", None), types.MethodType | None):
            raise ValueError("a forward that a copy would not have")
    if sum(each.numel() * each.element_size() for each in model.parameters()) > MOST_BYTES:
        raise ValueError("too large to copy")
    return copy.deepcopy(model)


def probe(scene: Scene, call: Captured, sequence: Sequence | None, losses: Losses, repeats: bool) -> Probe | None:
    """What a model does when its inputs are disturbed; None where it cannot be run again."""
    found = Probe(scene.name(call.model), repeats_evaluation=repeats)
    with scene.phases.deaf(), kept():
        try:
            again = Again(scene, call)
            place = next(n for n, each in enumerate(again.inputs) if each.dim() >= 1 and each.numel() > 1)
            with _Dropouts() as dropouts:
                base = again()
            found.random_in_evaluation = dropouts.on
            if not base or not all(bool(torch.isfinite(each).all()) for each in base):
                return found
            if not all(torch.equal(a, b) for a, b in zip(base, again(), strict=True)):
                return found  # it draws random numbers of its own: differences would mean nothing
            _disturb(found, again, place, base, sequence, losses)
        except Exception:
            return found
    return found


def _disturb(
    found: Probe, again: Again, place: int, base: list[torch.Tensor], sequence: Sequence | None, losses: Losses
) -> None:
    inputs = again.inputs[place]
    found.ignores_input = _ignores(again, place, base)
    tokens = tokens_of(again.call)
    turned = False
    if tokens is not None:
        turned = _time_first(tokens, sequence, losses, again.call)
        _causality(found, again, place, base, _counted(tokens, losses, again.call), turned=turned)
        _padding(found, again, place, base, tokens)
        _documents(found, again, place, base, tokens)
    if found.ignores_input or turned or inputs.shape[0] < 2:
        return
    found.relational = any(
        n != place
        and (
            (each.dim() >= 2 and each.shape[0] == each.shape[1] == inputs.shape[0])
            or (each.dim() == 2 and each.shape[0] == 2 and not each.is_floating_point())
            or each.is_sparse
        )
        for n, each in enumerate(again.inputs)
    )
    mixed, _ = _mixing(again, place, base, 0)
    if mixed > CHANGED and (sequence is None or sequence.shift is None) and inputs.dim() >= 2:
        targets = [loss.target_shape for loss, _, _ in losses.targets if loss.backward == again.call.backward]
        per_step = not targets or any(_size(each) == inputs.shape[0] * inputs.shape[1] for each in targets)
        if per_step or all(each[:1] != inputs.shape[:1] for each in targets):
            across, own = _mixing(again, place, base, 1)
            if across < CHANGED / 10 and own > CHANGED:
                return  # the second dimension holds the samples
    found.other_samples = mixed
    for module, (_, shape) in losses.softmax_over.items():
        if shape[0] == inputs.shape[0]:
            found.softmax_over_batch = module


def matters(scene: Scene, call: Captured, parameters: list[torch.Tensor]) -> dict[torch.Tensor, bool]:
    """Which parameters change an output that the loss was made from, when they are disturbed."""
    used = [n for n, number in enumerate(call.outputs) if number in call.used]
    if not used:
        return {}
    with scene.phases.deaf(), kept():
        try:
            again = Again(scene, call)
            names = {each: name for name, each in _inner(call.model).named_parameters()}
            copies = dict(again.model.named_parameters())
            base = again(training=True)
            return {each: _moves(again, copies[names[each]], base, used) for each in parameters[:64] if each in names}
        except Exception:
            return {}


def _moves(again: Again, parameter: torch.Tensor, base: list[torch.Tensor], used: list[int]) -> bool:
    with torch.no_grad():
        before = parameter.clone()
        parameter += 0.1 + before.float().std(correction=0).to(before.dtype) * torch.randn_like(before)
        after = again(training=True)
        parameter.copy_(before)
    return any(_change(base[n], after[n]) > 1e-6 for n in used if n < len(base))


def _inner(model: nn.Module) -> nn.Module:
    return getattr(model, "module", model) if type(model).__name__ == "DistributedDataParallel" else model


def _change(before: torch.Tensor, after: torch.Tensor) -> float:
    if before.shape != after.shape or not before.numel():
        return 0.0
    scale = before.std(correction=0) if before.numel() > 1 else before.abs().squeeze()
    return float((before - after).abs().max() / (scale + 1e-9))


def _other(values: torch.Tensor, seed: int) -> torch.Tensor:
    """Other values of the same kind: tokens drawn from those that occur, numbers moved and scaled."""
    if values.is_floating_point():
        return values.flip(0) * 1.7 + 0.9 if values.dim() else values * 1.7 + 0.9
    drawn = torch.Generator().manual_seed(seed)
    pool = values.flatten()
    return pool[torch.randint(0, pool.numel(), values.shape, generator=drawn)]


def _redrawn(values: torch.Tensor, pool: torch.Tensor, seed: int) -> torch.Tensor:
    """Tokens drawn from a pool, each other than the one it replaces."""
    pool = pool.unique()
    drawn = torch.Generator().manual_seed(seed)
    new = pool[torch.randint(0, pool.numel(), values.shape, generator=drawn)]
    following = pool[(torch.searchsorted(pool, new) + 1) % pool.numel()]
    return torch.where(new == values, following, new)


def _ignores(again: Again, place: int, base: list[torch.Tensor]) -> bool:
    inputs = again.inputs[place]
    new = _other(inputs, 11) if inputs.is_floating_point() else _redrawn(inputs, inputs, 11)
    if torch.equal(new, inputs):
        return False
    changed = {n: _other(each, 12) for n, each in enumerate(again.inputs) if each.is_floating_point()}
    after = again({**changed, place: new})
    return all(_change(a, b) < 1e-6 for a, b in zip(base, after, strict=True))


def _mixing(again: Again, place: int, base: list[torch.Tensor], dim: int) -> tuple[float, float]:
    """How much the outputs of other samples, and of the sample itself, change with one sample."""
    inputs = again.inputs[place]
    new = inputs.clone()
    one = new.select(dim, 0)
    one.copy_(one.flip(0) * 1.7 + 0.9 if inputs.is_floating_point() and one.dim() else _other(one, 3))
    others = own = 0.0
    for before, after in zip(base, again({place: new}), strict=True):
        if before.shape == after.shape and before.dim() > dim and before.shape[dim] == inputs.shape[dim]:
            change = ((before - after).abs() / (before.std(correction=0) + 1e-9)).transpose(0, dim)
            others, own = max(others, float(change[1:].max())), max(own, float(change[:1].max()))
    return others, own


def _time_first(tokens: torch.Tensor, sequence: Sequence | None, losses: Losses, call: Captured) -> bool:
    """Do the targets say that the first dimension is time?"""
    if sequence is None or sequence.shift is None:
        return False
    for loss, target, ignored in losses.targets:
        rows = align(tokens, target, ignored)
        if loss.backward == call.backward and rows is not None and rows.shape == tokens.shape:
            return best_shift(tokens, rows, ignored)[1] < 0.9
    return False


def _per_token(outputs: list[torch.Tensor], tokens: torch.Tensor, *, turned: bool) -> list[torch.Tensor]:
    """The outputs that have one row per token, as (samples, time, features)."""
    rows, length = tokens.shape
    found = []
    for each in outputs:
        if each.dim() == 2 and each.shape[0] == rows * length:
            each = each.view(rows, length, -1)
        if each.dim() >= 3 and tuple(each.shape[:2]) == (rows, length):
            found.append(each.transpose(0, 1) if turned else each)
    return found


def _counted(tokens: torch.Tensor, losses: Losses, call: Captured) -> torch.Tensor:
    """The positions whose logits have a target; a prefix without any may see what it likes."""
    counted = torch.ones_like(tokens, dtype=torch.bool)
    for loss, target, ignored in losses.targets:
        rows = align(tokens, target, ignored)
        if loss.backward == call.backward and rows is not None:
            counted[:, : rows.shape[1]] = rows != ignored
            counted[:, rows.shape[1] :] = False
            break
    return counted


def _causality(
    found: Probe, again: Again, place: int, base: list[torch.Tensor], counted: torch.Tensor, *, turned: bool
) -> None:
    """Later tokens are replaced, and earlier logits compared; and the other way round."""
    counted = counted.t() if turned else counted
    tokens = again.inputs[place]
    if tokens.unique().numel() < 2:
        return
    sequence = tokens.t() if turned else tokens
    length = sequence.shape[1]
    for training in (False, True):
        before = _per_token(again(training=training) if training else base, tokens, turned=turned)
        for cut in sorted({max(1, length // 3), length // 2 + 1, length - 1}):
            new = sequence.clone()
            new[:, cut:] = _redrawn(new[:, cut:], tokens, 5)
            after = _per_token(again({place: new.t() if turned else new}, training=training), tokens, turned=turned)
            for a, b in zip(before, after, strict=True):
                change = (a - b)[:, :cut][counted[:, :cut]].abs()
                found.future = max(found.future, float(change.max() / (a.std() + 1e-9)) if change.numel() else 0.0)
    cut = length // 2
    new = sequence.clone()
    new[:, :cut] = _redrawn(new[:, :cut], tokens, 6)
    after = _per_token(again({place: new.t() if turned else new}), tokens, turned=turned)
    for a, b in zip(_per_token(base, tokens, turned=turned), after, strict=True):
        found.past = max(found.past, float((a - b)[:, cut:].abs().max() / (a.std() + 1e-9)))


def _padding(found: Probe, again: Again, place: int, base: list[torch.Tensor], tokens: torch.Tensor) -> None:
    mask = mask_of(again.call, tokens)
    if mask is None or tokens.unique().numel() < 3:
        return
    new = tokens.clone()
    new[~mask] = _redrawn(new[~mask], tokens[mask], 9)
    after = _per_token(again({place: new}), tokens, turned=False)
    for a, b in zip(_per_token(base, tokens, turned=False), after, strict=True):
        found.padding = max(found.padding, float((a - b).abs()[mask].max() / (a.std(correction=0) + 1e-9)))


def _documents(found: Probe, again: Again, place: int, base: list[torch.Tensor], tokens: torch.Tensor) -> None:
    """Where positions start again inside a row, what stands before must not matter behind."""
    positions = again.call.kwargs.get("position_ids")
    if positions is None or positions.shape != tokens.shape or tokens.unique().numel() < 3:
        return
    starts = (positions[0, 1:] == 0).nonzero()
    if not starts.numel():
        return
    cut = int(starts[-1]) + 1
    new = tokens.clone()
    new[0, :cut] = _redrawn(new[0, :cut], tokens, 13)
    after = _per_token(again({place: new}), tokens, turned=False)
    for a, b in zip(_per_token(base, tokens, turned=False), after, strict=True):
        found.documents = max(found.documents, float((a[0, cut:] - b[0, cut:]).abs().max() / (a.std() + 1e-9)))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size


class _Dropouts(TorchFunctionMode):
    """Hears of dropout that is on."""

    on = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _DROPOUTS:
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
            self.on = name if training and p > 0 else self.on
        elif name == "scaled_dot_product_attention":
            p = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
            self.on = name if p > 0 else self.on
        return func(*args, **kwargs)
