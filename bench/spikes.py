"""spikes: whether `surefoot replay` attributes spikes and NaN to the causes that were planted.

    python bench/spikes.py [--quick] [--only TEXT] [--seeds N] [--out FILE]

Each case trains a small model with one planted cause, and replays the run: samples with huge values, a mislabelled or
corrupt sample, a learning rate that jumps in one step, float16 that overflows in one layer, a layer that needs float32
under bfloat16. A case counts as attributed if cause and place are named: exactly the planted samples, the step of the
rate, the module. A wrong cause or place is misleading; an unknown cause is neither. A cause is attributed if all of its
cases that have a spike are; those in whose log nothing stands out count as `no_spike`. Clean runs must give no cause.
`--quick` takes one case of each cause, and two clean runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from record import write_record
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import surefoot
from surefoot import Recipe
from surefoot.data.batches import batches_of
from surefoot.debug.spikes.replay import replay
from surefoot.errors import NonFinite
from surefoot.reports.console import as_text
from surefoot.reports.spike import attribution_text

STEPS, SAMPLES, CLASSES, WIDTH = 130, 4096, 8, 32


# ------------------------------------------------------------------------------------------- models and data


class Classifier(nn.Module):
    """Points to classes, or to one number. A fixed stem and a norm come first, so shifts and scales do not matter."""

    def __init__(self, norm: nn.Module | None = None, *, drop: float = 0.0, outputs: int = CLASSES) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.eye_(self.stem.weight)
        self.norm = norm or nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3))
        self.drop, self.head = nn.Dropout(drop), nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.drop(x))


class Reader(nn.Module):
    """Tokens to the next token, with attention; `softmax` makes the weights."""

    def __init__(self, softmax: nn.Module | None = None) -> None:
        super().__init__()
        self.token, self.norm = nn.Embedding(CLASSES, WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.softmax, self.head = softmax or nn.Softmax(-1), nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        y = self.norm(x)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (self.q(y) @ self.k(y).transpose(1, 2) / WIDTH**0.5).masked_fill(hidden, -1e4)
        return self.head(x + self.softmax(scores) @ self.v(y))


class PlainRms(nn.Module):
    """A root mean square norm that squares in the format of its input: float16 overflows above 256."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


class OnePassNorm(nn.Module):
    """A norm with the variance E[x^2] - E[x]^2: far from zero, bfloat16 leaves nothing of it, or less."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean)


class PlainSoftmax(nn.Module):
    """A softmax that does not subtract the maximum: exp(12) is too large for float16."""

    def forward(self, scores: Tensor) -> Tensor:
        weights = scores.clamp(min=-30).exp().to(scores.dtype)
        return weights / weights.sum(-1, keepdim=True)


def points(seed: int) -> TensorDataset:
    """Points around one centre for each class."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (SAMPLES,), generator=draws)
    centres = 2 * torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(99))
    return TensorDataset(centres[labels] + 0.5 * torch.randn(SAMPLES, WIDTH, generator=draws), labels)


def heights(seed: int) -> TensorDataset:
    """Points, and a number that follows from each."""
    (x, _), draws = points(seed).tensors, torch.Generator().manual_seed(98)
    return TensorDataset(x, torch.tanh(x @ torch.randn(WIDTH, 1, generator=draws) / WIDTH**0.5))


def counting(seed: int) -> TensorDataset:
    """Tokens that count up, from any start."""
    starts = torch.randint(0, CLASSES, (SAMPLES, 1), generator=torch.Generator().manual_seed(seed))
    tokens = (starts + torch.arange(17)) % CLASSES
    return TensorDataset(tokens[:, :-1], tokens[:, 1:])


def class_loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    return nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten(), reduction="sum"), y.numel()


def squared_error(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    return (model(x) - y).square().sum(), len(y)


def recipe_of(
    seed: int,
    *,
    model: Callable[[], nn.Module] = Classifier,
    data: Callable[[int], Dataset[Any]] = points,
    **changes: Any,
) -> Recipe:
    made = data(seed)
    fields: dict[str, Any] = {
        "model": model,
        "data": lambda: made,
        "loss": class_loss,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        "micro_batch_size": 16,
        "global_batch_tokens": 32,
        "max_steps": STEPS,
        "save_every": 10,
        "keep_last": 9,
        "freeze": "stem.*" if data is not counting else None,
        "seed": seed,
    }
    return Recipe(**{**fields, **changes})


def with_samples(
    recipe: Recipe, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], picked: list[int]
) -> Recipe:
    """The recipe with some samples changed."""
    x, y = (each.clone() for each in recipe.data().tensors)
    x[picked], y[picked] = change(x[picked], y[picked])
    return replace(recipe, data=lambda: TensorDataset(x, y))


def taken_in(recipe: Recipe, step: int) -> list[int]:
    """The samples of a step."""
    batches = batches_of(recipe, first_step=step - 1)
    for _ in range(recipe.micro_batches()):
        next(batches)
    return list(batches.taken)


# ------------------------------------------------------------------------------------------- planted causes


@dataclass(frozen=True)
class Case:
    """A recipe with a planted cause, and what must be named: samples, the step of the rate, or the module."""

    cause: str
    name: str
    recipe: Recipe
    wanted: Any = None


def cases(seed: int) -> Iterator[Case]:
    """All causes, each planted in two ways; where a step is chosen, it depends on the seed."""
    step = 101 + 3 * (seed % 5)
    base, read = recipe_of(seed), recipe_of(seed, model=Reader, data=counting)
    numbers = taken_in(base, step)
    two, one = [numbers[3], numbers[20]], [numbers[11]]
    turned = with_samples(base, lambda x, y: (-1e3 * x, y), two)
    yield Case("huge", "the inputs of two samples times -1,000", turned, two)
    high = recipe_of(seed, model=lambda: Classifier(outputs=1), data=heights, loss=squared_error)
    high = with_samples(high, lambda x, y: (x, 1e3 + y), one)
    yield Case("huge", "a target of 1,000 where others are at most 1", high, one)
    wrong = with_samples(base, lambda x, y: (x, (y + 3) % CLASSES), one)
    yield Case("corrupt", "one label is wrong", wrong, one)
    mixed = with_samples(read, lambda x, y: (x, y.flip(1)), [taken_in(read, step)[7]])
    yield Case("corrupt", "the targets of one text are reversed", mixed, [taken_in(read, step)[7]])

    def jump(now: int, _: int) -> float:
        return 1000.0 if now == step - 1 else 1.0

    high = recipe_of(seed, model=lambda: Classifier(outputs=1), data=heights, loss=squared_error, schedule=jump)
    yield Case("rate", "1,000 times the rate in one step", high, step)
    yield Case("rate", "the same while reading", recipe_of(seed, model=Reader, data=counting, schedule=jump), step)
    bright = recipe_of(seed, model=lambda: Classifier(PlainRms()), precision="16-mixed")
    bright = with_samples(bright, lambda x, y: (200 * x, y), taken_in(bright, step))
    yield Case("float16", "squares overflow in a norm", bright, "norm")
    sharp = recipe_of(seed, model=lambda: Reader(PlainSoftmax()), data=counting, precision="16-mixed")
    sharp = replace(sharp, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-2))
    yield Case("float16", "exponentials overflow in a softmax", sharp, "softmax")
    for name, norm in (("norm", OnePassNorm), ("norm.1", lambda: nn.Sequential(nn.Identity(), OnePassNorm()))):
        shifted = recipe_of(seed, model=lambda norm=norm: Classifier(norm()), precision="bf16-mixed")
        shifted = with_samples(shifted, lambda x, y: (x + 40, y), taken_in(shifted, step))
        yield Case("bfloat16", f"cancellation in `{name}`", shifted, name)


def clean(seed: int) -> Iterator[Case]:
    """Runs in which nothing is wrong."""
    yield Case("", "points", recipe_of(seed))
    yield Case(
        "",
        "points, small batches, dropout",
        recipe_of(seed, model=lambda: Classifier(drop=0.2), global_batch_tokens=16),
    )
    yield Case("", "points, bfloat16", recipe_of(seed, precision="bf16-mixed"))
    yield Case("", "points, float16", recipe_of(seed, precision="16-mixed"))
    yield Case("", "tokens", recipe_of(seed, model=Reader, data=counting))


CAUSES = {
    "huge": "samples",
    "corrupt": "samples",
    "rate": "learning-rate",
    "float16": "precision",
    "bfloat16": "precision",
}


def judged(case: Case, folder: str) -> dict[str, Any]:
    """Trains a case and replays it."""
    began = time.perf_counter()
    with suppress(NonFinite):  # the run stops at a NaN, and its directory says so
        surefoot.train(case.recipe, path=folder)
    found = replay(folder, case.recipe)
    named = {
        "samples": sorted(found.samples),
        "learning-rate": found.at_step,
        "precision": found.module,
    }.get(found.cause)
    wanted = sorted(case.wanted) if isinstance(case.wanted, list) else case.wanted
    if not case.cause:
        verdict = "silent" if found.cause in ("none", "unknown") else "misleading"
    elif found.cause in ("none", "unknown"):
        verdict = "no spike" if found.symptom is None else "unknown"
    else:
        verdict = "attributed" if (CAUSES[case.cause], wanted) == (found.cause, named) else "misleading"
    return {
        "cause": case.cause or "clean",
        "name": case.name,
        "verdict": verdict,
        "seconds": round(time.perf_counter() - began, 1),
        "as_logged": found.as_logged,
        "wanted": wanted,
        "said": as_text(attribution_text(found)).replace(folder, "RUN"),
    }


def result(rows: list[dict[str, Any]]) -> str:
    planted = [row for row in rows if row["cause"] != "clean"]
    kinds = {row["cause"] for row in planted}
    found = {kind: {row["verdict"] for row in planted if row["cause"] == kind} - {"no spike"} for kind in kinds}
    count = Counter(row["verdict"] for row in rows)
    return (
        f"RESULT causes={len(kinds)} attributed={sum(each == {'attributed'} for each in found.values())} "
        f"misleading={count['misleading']} cases={len(planted)} cases_attributed={count['attributed']} "
        f"no_spike={count['no spike']} clean={len(rows) - len(planted)} clean_silent={count['silent']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, one case of each cause, two clean runs")
    parser.add_argument("--only", default="", help="cases whose cause or name contains this")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1 if options.quick else options.seeds):
            chosen = [*cases(seed), *clean(seed)]
            if options.quick:
                chosen = [*{each.cause: each for each in chosen if each.cause}.values(), *list(clean(seed))[:2]]
            for number, case in enumerate(chosen):
                if options.only not in f"{case.cause} {case.name}":
                    continue
                row = {"seed": seed, **judged(case, f"{folder}/{seed}-{number}")}
                rows.append(row)
                print(f"{row['cause']}, {row['name']}, seed {seed}: {row['verdict']} in {row['seconds']} s", flush=True)
                if row["verdict"] not in ("attributed", "silent"):
                    print(row["said"], flush=True)
    if options.out:
        write_record(options.out, {"rows": rows, "result": result(rows)})
    print(result(rows))


if __name__ == "__main__":
    main()
