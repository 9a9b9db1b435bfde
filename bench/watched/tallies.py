"""Tallies: whether a watched script was booked as `surefoot profile` books a recipe of the same model.

FLOPs, tokens and memory by account and module must be the same. What a trainer holds beside is known by name and to
the byte: a batch that it fetches ahead, gradients that it keeps through the next forward, the buckets of DDP.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from surefoot import Recipe, profile
from surefoot.records.usage import Usage
from watched.model import CONTEXT, Model, Tokens

SCALARS = 64
"""Bytes outside modules by which loops may differ: each keeps the sum of its losses in its own way."""
_OF_RANKS = ("collectives/", "traffic/", "overlap/")
"""What a profile on one rank does not have."""


@dataclass(frozen=True)
class Kind:
    """What a script does in one step, as a recipe says it, and what it holds beside."""

    micro_batch_size: int = 16
    micro_batches: int = 1
    max_grad_norm: float | None = None
    precision: str = "32-true"
    fetches_ahead: bool = False
    """Accelerate's loader holds the next batch while one is trained on; it is Hugging Face's Trainer's too."""
    keeps_gradients: bool = False
    """Lightning zeroes gradients after the forward, so that the step has its peak there and not in backward."""
    has_buckets: bool = False
    """DDP copies every gradient into a bucket that it keeps."""

    def recipe(self) -> Recipe:
        return Recipe(
            model=Model,
            data=Tokens,
            loss=lambda model, batch: model(**batch)["loss"],
            optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
            micro_batch_size=self.micro_batch_size,
            global_batch_tokens=self.micro_batches * self.micro_batch_size * CONTEXT,
            tokens_per_sample=CONTEXT,
            max_grad_norm=self.max_grad_norm,
            precision=self.precision,
        )


ACCUMULATED = {"micro_batch_size": 8, "micro_batches": 2, "max_grad_norm": 1.0}
KINDS = {
    "plain": Kind(),
    "nano": Kind(**ACCUMULATED, precision="bf16-mixed"),
    "by_lightning": Kind(keeps_gradients=True),
    "by_hf_trainer": Kind(max_grad_norm=1.0, fetches_ahead=True),
    "by_accelerate": Kind(**ACCUMULATED, fetches_ahead=True),
    "two_ranks": Kind(has_buckets=True),
}


def differences(script: str, watched: Usage) -> dict[str, tuple[float, float]]:
    """Accounts that a profile has booked otherwise: by name, what it booked and what was seen of the script."""
    kind = KINDS[script]
    booked = profile(kind.recipe(), timed_steps=1).steady
    expected, seen = _with_what_it_holds(kind, _amounts(booked)), _amounts(watched)
    if kind.keeps_gradients:
        for amounts, usage in ((expected, booked), (seen, watched)):
            _at_the_end_of_forward(amounts, usage)
        expected["peak/forward"] += booked.tally.total("memory/parameters")
    pairs = {name: (expected.get(name, 0), seen.get(name, 0)) for name in sorted({*expected, *seen})}
    return {name: pair for name, pair in pairs.items() if abs(pair[0] - pair[1]) > _allowed(name)}


def _amounts(usage: Usage) -> dict[str, float]:
    """By account, with the names that modules have inside their wrapper."""
    named = {f"{each.name}/".replace("/module.", "/").replace("/module/", "/"): each for each in usage.tally.accounts}
    return {name.rstrip("/"): each.amount for name, each in named.items() if not name.startswith(_OF_RANKS)}


def _with_what_it_holds(kind: Kind, amounts: dict[str, float]) -> dict[str, float]:
    parameters = {name: held for name, held in amounts.items() if name.startswith("memory/parameters/")}
    if kind.fetches_ahead:
        amounts["memory/inputs"] *= 2
    if kind.has_buckets:
        amounts["memory/communication"] = sum(parameters.values())
    if kind.keeps_gradients:
        amounts |= {name.replace("parameters", "gradients"): held for name, held in parameters.items()}
    return amounts


def _at_the_end_of_forward(amounts: dict[str, float], usage: Usage) -> None:
    """Temporary tensors are those of the peak's moment; where moments differ, the bytes in forward are compared."""
    for name in [name for name in amounts if name.startswith("memory/temporary")]:
        del amounts[name]
    amounts["peak/forward"] = usage.phase_peaks["forward"].peak_bytes


def _allowed(name: str) -> int:
    return SCALARS if name == "peak/forward" or (name.startswith("memory/") and name.count("/") == 1) else 0
