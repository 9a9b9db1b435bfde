"""Finds which tokens are padding, and whether outputs at other positions depend on them."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.captured_call import Captured
from surefoot.checks.engine.rerun import CHANGED, Again, change, moved, redrawn
from surefoot.checks.engine.scene import tensors
from surefoot.checks.text.lookups import Text, marks_of

_MIXING = (nn.RNNBase, nn.Conv1d)
"""Layers that read padding next to text on purpose: their output at padding is disturbed, not the tokens."""
_ATTENTION = {
    "scaled_dot_product_attention",
    "multi_head_attention_forward",
    "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
    "flex_attention",
}


def known_padding(call: Captured, text: Text) -> tuple[torch.Tensor | None, str]:
    """The padding of a text, and how it is known."""
    mask = mask_of(call, text)
    if mask is not None:
        return ~mask, "a mask"
    lengths = _by_lengths(call, text.tokens)
    return (
        (lengths, "lengths")
        if lengths is not None
        else (ends_of(text.tokens, text.padding), "equal tokens at the ends of rows")
    )


def mask_of(call: Captured, text: Text) -> torch.Tensor | None:
    """The mask that came with a text, inverted if necessary so that True means real."""
    tokens = text.tokens
    given = [each for each in tensors((call.args, call.kwargs)) if each.shape == tokens.shape]
    alone = sum(not each.is_floating_point() and each.unique().numel() > 2 for each in given) <= 1
    for each in given:
        if set(each.unique().tolist()) != {0, 1}:
            continue
        kept = each.bool()
        for mask in (kept, ~kept):
            if tokens[~mask].unique().numel() == 1 and (_falls(mask) or _falls(mask.flip(1))):
                return mask
        if (alone or any(each is other for other in _named_masks(call))) and _falls(kept):
            return kept
    return None


def _named_masks(call: Captured) -> list[Any]:
    """The arguments of a model whose names contain `mask`."""
    named = [call.kwargs, *(each for each in call.args if isinstance(each, dict))]
    return [value for each in named for name, value in each.items() if "mask" in name]


def _falls(mask: torch.Tensor) -> bool:
    """Do all rows start with real tokens and end with padding?"""
    return bool((mask[:, 1:] <= mask[:, :-1]).all())


def _by_lengths(call: Captured, tokens: torch.Tensor) -> torch.Tensor | None:
    """Padding by the lengths that came with the tokens: one whole number per row, at most the number of columns."""
    rows, longest = tokens.shape
    for each in tensors((call.args, call.kwargs)):
        counts = each.shape == (rows,) and not each.is_floating_point()
        if counts and int(each.max()) == longest and int(each.min()) > 0:
            padded = torch.arange(longest, device="cpu") >= each.cpu()[:, None]
            return padded if tokens.cpu()[padded].unique().numel() == 1 else None
    return None


def ends_of(tokens: torch.Tensor, padding: int | None = None) -> torch.Tensor | None:
    """Padding without a mask: a token that only occurs at the ends of rows, in runs of different lengths.

    If the token is known, shorter runs are enough.
    """
    for value in tokens[:, -1].unique().tolist():
        is_value = tokens == value
        run = is_value.flip(1).long().cumprod(1).flip(1).bool()
        lengths = run.sum(1)
        long = lengths[lengths >= 2]
        sure = value == padding or (long.numel() >= 2 and long.unique().numel() >= 2)
        if sure and bool((is_value == run).all()):
            return run
    return None


def _marked(text: Text) -> torch.Tensor | None:
    """The padding that the forward itself marks: one token, at the ends of rows, in runs of different lengths."""
    for each in text.marks:
        for padded in (each == each.max(), each == each.min()):
            alike = text.tokens[padded].unique().numel() == 1 and padded.sum(1).unique().numel() >= 2
            if alike and (_falls(~padded) or _falls(~padded.flip(1))):
                return padded
    return None


def leak(again: Again, text: Text) -> float:
    """How much outputs at real positions change with the tokens at padded ones, in a model that has a mask."""
    padded, text = _padding(again, text)
    if padded is None or text.tokens[~padded].unique().numel() < 2 or not _attends(again, padded):
        return 0.0
    declared = bool((text.tokens[padded] == text.padding).all()) if text.padding is not None else False
    if not _is_masked(again, text.marks, padded) and not (declared and _lost_mask(again, padded)):
        return 0.0
    if any(isinstance(each, _MIXING) for each in again.model.modules()):
        return _behind_mixing(again, padded)
    new = text.tokens.clone()
    new[padded] = redrawn(new[padded], text.tokens[~padded], 9)
    moves = _at_real(text.swapped(again, text.tokens), text.swapped(again, new), padded)
    if _is_zero(text, padded):
        return min(moves, _by_length(again, padded))  # a sum over rows of zeros needs no mask
    return moves


def _padding(again: Again, text: Text) -> tuple[torch.Tensor | None, Text]:
    """The padding of a text, and the text with one sample per row, whichever way it entered."""
    ways = (text, text.turn())
    found = [(known_padding(again.call, each)[0], each) for each in ways] + [(_marked(each), each) for each in ways]
    return next((each for each in found if each[0] is not None and bool((~each[0]).any(1).all())), (None, text))


def leak_of_numbers(again: Again, place: int) -> float:
    """The same as `leak`, for samples whose steps are rows of numbers instead of tokens."""
    steps = again.inputs[place]
    if steps.dim() != 3 or not steps.is_floating_point():
        return 0.0
    empty = (steps == 0).all(-1)
    padded = empty.flip(1).long().cumprod(1).flip(1).bool()
    marks = marks_of(again, padded.shape)
    if padded.sum(1).unique().numel() < 3 or not _is_masked(again, marks, padded) or not _attends(again, padded):
        return 0.0
    if any(isinstance(each, _MIXING) for each in again.model.modules()):
        return _behind_mixing(again, padded)
    new = steps.clone()
    new[padded] = steps[~padded][torch.arange(int(padded.sum()), device="cpu") % int((~padded).sum())]
    return min(_at_real(again(), again({place: new}), padded), _by_length(again, padded))


def hides_text(again: Again, text: Text, *, next_token: bool) -> bool:
    """Does a mask hide text instead of padding: at the wrong end of rows, or inverted?

    With an inverted mask, a model that reads from left to right does not see its padding either; then no token of a
    padded row matters to later ones.
    """
    given = [each for each in again.inputs if each.shape == text.tokens.shape and each.unique().numel() == 2]
    masks = [each.bool() for each in given]
    if any(_keeps_one_token(text.tokens, each) and _sees_only(again, text, each) for each in masks):
        return True
    padded = ends_of(text.tokens, text.padding)
    if padded is None or padded.sum(1).unique().numel() < 2:
        return False
    mirrored = any(each.flip(1).equal(padded) or each.flip(1).equal(~padded) for each in masks)
    known = any(each.equal(padded) or each.equal(~padded) for each in masks)
    return (mirrored and not known) or (known and next_token and _is_blind(again, text, padded))


def _keeps_one_token(tokens: torch.Tensor, mask: torch.Tensor) -> bool:
    """After the first column, does a mask keep hardly more than one token, which it never drops, and drop the text?"""
    kept, dropped = tokens[:, 1:][mask[:, 1:]], tokens[:, 1:][~mask[:, 1:]]
    if not kept.numel() or dropped.unique().numel() < 3:
        return False
    commonest = kept.mode().values
    return bool((kept == commonest).float().mean() > 0.7) and not bool((dropped == commonest).any())


def _sees_only(again: Again, text: Text, mask: torch.Tensor) -> bool:
    """Do samples depend on the tokens after the first that a mask keeps, and not on those it drops?"""
    rows, base, largest = mask[:, 1:].any(1), text.swapped(again, text.tokens), []
    for wanted in (mask, ~mask):
        changed = wanted.clone()
        changed[:, 0] = False
        new = text.tokens.clone()
        new[changed] = redrawn(new[changed], text.tokens[~changed], 10)
        pairs = zip(base, text.swapped(again, new), strict=True)
        whole = [(a[rows], b[rows]) for a, b in pairs if a.dim() >= 2 and len(a) == len(rows)]
        firsts = [(a[:, 0], b[:, 0]) if a.shape[1] == mask.shape[1] else (a, b) for a, b in whole]
        largest.append(max((change(a, b) for a, b in firsts), default=0.0))
    return largest[1] < CHANGED / 10 and largest[0] > CHANGED


def _is_blind(again: Again, text: Text, padded: torch.Tensor) -> bool:
    """Do the first tokens of padded rows not matter to later ones?"""
    new = text.tokens.clone()
    new[:, :2] = redrawn(new[:, :2], text.tokens[~padded], 10)
    behind = ~padded & padded.any(1, keepdim=True)
    behind[:, :2] = False
    before, after = text.swapped(again, text.tokens), text.swapped(again, new)
    return bool(behind.any()) and _at_real(before, after, ~behind) == 0.0


def _is_masked(again: Again, marks: list[torch.Tensor], padded: torch.Tensor) -> bool:
    """Did the forward have something that separates padding from text, at least nearly?"""
    marks = [*marks, *(each for each in again.inputs if each.shape == padded.shape)]
    pairs = (torch.stack([each.flatten(), padded.flatten()]).float() for each in marks if each.unique().numel() == 2)
    return any(abs(float(torch.corrcoef(pair)[0, 1])) > 0.6 for pair in pairs)


def _lost_mask(again: Again, padded: torch.Tensor) -> bool:
    """Did the model get a mask that hides nothing, or none although it takes one?"""
    beside = [each for each in again.inputs if each.shape == padded.shape]
    if any(bool((each == 1).all()) for each in beside):
        return True
    given = again.call.kwargs.get("attention_mask") is not None or any(each.unique().numel() == 2 for each in beside)
    return not given and "attention_mask" in inspect.signature(again.model.forward).parameters


def _attends(again: Again, padded: torch.Tensor) -> bool:
    """Does the forward weigh places with a softmax over them, as attention does?"""
    with _Attention(padded.shape[1]) as seen:
        again()
    return seen.attends


class _Attention(TorchFunctionMode):
    """Notices attention over this many places: torch's own, or a softmax over as many numbers."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.places, self.attends = places, False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        softmax = name == "softmax" and isinstance(out, torch.Tensor) and self.places in out.shape
        self.attends = self.attends or softmax or name in _ATTENTION
        return out


def _is_zero(text: Text, padded: torch.Tensor) -> bool:
    """Does the embedding hold zeros for the padding?"""
    table = text.table
    return table is not None and table.dim() == 2 and not bool(table[text.tokens[padded]].any())


def _at_real(before: list[torch.Tensor], after: list[torch.Tensor], padded: torch.Tensor) -> float:
    """The largest change of an output that belongs to a real position, or to no position of this text."""
    (rows, length), largest = padded.shape, 0.0
    for a, b in zip(before, after, strict=True):
        if a.shape != b.shape or a.dim() == 0:
            continue
        if a.dim() == 2 and len(a) == rows * length:
            a, b = a.view(rows, length, -1), b.view(rows, length, -1)
        if a.shape[:2] == (length, rows) and rows != length:
            a, b = a.transpose(0, 1), b.transpose(0, 1)
        if a.shape[:2] == (rows, length):
            differs = moved(a, b)[~padded]
        elif length not in a.shape:
            differs = moved(a, b)
        else:
            continue
        largest = max(largest, float(differs.max()) if differs.numel() else 0.0)
    return largest


def _by_length(again: Again, padded: torch.Tensor) -> float:
    """How much outputs of shorter samples change without the longest samples and the columns that only they fill."""
    rows, length = padded.shape
    real = (~padded).sum(1)
    kept = real < min(length, int(real.max()) + 1)
    shorter = int(real[kept].max()) if bool(kept.any()) else length
    if shorter == length or not bool(padded[kept][:, shorter:].all()):
        return 0.0

    def cut(each: torch.Tensor) -> torch.Tensor:
        each = each[kept] if each.dim() and len(each) == rows else each
        return each[:, :shorter] if each.dim() >= 2 and each.shape[1] == length else each

    with attempt("leaving out the longest samples"):
        whole, short = again(), again({place: cut(each) for place, each in enumerate(again.inputs)})
        return _at_real([cut(each) for each in whole], short, padded[kept][:, :shorter])
    return 0.0


def _behind_mixing(again: Again, padded: torch.Tensor) -> float:
    """How much outputs change with the output of the last mixing layer at padded positions."""
    calls = _Noise(padded)
    base = calls.around(again)
    if not calls.seen:
        return _by_length(again, padded)  # they get packed rows, and return zeros for padding
    return _at_real(base, _Noise(padded, at=calls.seen - 1).around(again), padded)


class _Noise:
    """Changes the output of one mixing layer at padded positions, and counts the calls of all."""

    def __init__(self, padded: torch.Tensor, *, at: int | None = None) -> None:
        self.padded, self.at, self.seen = padded, at, 0

    def around(self, again: Again) -> list[torch.Tensor]:
        with ExitStack() as stack:
            for module in again.model.modules():
                if isinstance(module, _MIXING):
                    stack.callback(module.register_forward_hook(self._returned).remove)
            return again()

    def _returned(self, module: nn.Module, args: object, output: object) -> Any:
        turn = (1, 2) if isinstance(module, nn.Conv1d) else (0, 0) if getattr(module, "batch_first", False) else (0, 1)
        states = output[0] if isinstance(output, tuple) else output
        if not isinstance(states, torch.Tensor) or states.dim() != 3:
            return None
        rows = states.transpose(*turn)
        if rows.shape[:2] != self.padded.shape:
            return None
        self.seen += 1
        if self.at == self.seen - 1:
            rows = rows.clone()
            rows[self.padded] += rows.std() * torch.rand_like(rows[self.padded])
            states = rows.transpose(*turn)
        return (states, *output[1:]) if isinstance(output, tuple) else states
