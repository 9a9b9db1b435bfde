"""Every rule by the name that silences it, and what the rules say of the facts."""

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from surefoot.checks.facts import Evidence
from surefoot.errors import RecipeError
from surefoot.records.finding import Finding, Findings


def _found() -> Iterator[tuple[str, Callable[[Evidence], Iterator[Finding]]]]:
    """Every rule that has a function `check`."""
    for file in sorted(Path(__file__).parent.glob("*/rules/*.py"), key=lambda file: file.stem):
        module = f"{__package__}.{file.parts[-3]}.rules.{file.stem}"
        check = getattr(importlib.import_module(module), "check", None)
        if check is not None:
            yield file.stem.replace("_", "-"), check


CHECKS: dict[str, Callable[[Evidence], Iterator[Finding]]] = dict(_found())
"""Every check by the name that silences it."""

EXPLAINS: dict[str, tuple[str, ...]] = {
    "detached-loss": ("update-without-gradients", "missing-update", "detached-layers", "loss-term-without-gradient"),
    "loss-term-without-gradient": ("detached-layers",),
    "layers-in-plain-list": (
        "dropout-in-evaluation","unregistered-parameter", "optimizer-of-other-parameters"),
    "only-frozen-parameters-in-optimizer": (
        "detached-loss","update-without-gradients", "parameter-outside-optimizer"),
    "optimizer-of-other-parameters": (
        "detached-loss",
        "update-without-gradients", "parameter-outside-optimizer", "gradients-into-fixed-network", "missing-update",
        "clipping-without-effect",
    ),
    "zero-grad-between-micro-batches": ("summed-micro-batches", "mean-of-unequal-means"),
    "update-without-gradients": (
        "update-without-effect", "clipping-without-effect", "missing-zero-grad", "zero-grad-between-micro-batches",
    ),
    "probabilities-in-kl-div": ("kl-div-mean-over-elements", "nonfinite-gradients"),
    "overwritten-saved-tensor": ("detached-layers",),
    "missing-zero-grad": ("summed-micro-batches",),
    "growing-graph": ("kept-losses",),
    "scaler-skips-updates": (
        "missing-update", "zero-grad-between-micro-batches", "leftover-micro-batches", "scheduler-out-of-order",
    ),
    "softmax-over-wrong-dimension": (
        "samples-mixed-in-batch", "logits-in-nll-loss", "future-tokens-in-logits", "ctc-input-not-log-probabilities",
    ),
    "view-in-place-of-transpose": (
        "samples-mixed-in-batch", "ctc-input-not-log-probabilities", "future-tokens-in-logits"),
    "softmax-before-cross-entropy": ("far-off-initial-loss",),
    "unscaled-inputs": ("far-off-initial-loss",),
    "input-ignored": ("detached-layers", "samples-mixed-in-batch", "end-token-ignored"),
    "padding-in-attention": ("input-ignored",),
    "symmetric-initial-weights": ("input-ignored", "update-without-gradients"),
    "all-targets-ignored": ("nonfinite-gradients", "constant-targets", "update-without-gradients"),
    "overflowing-mask-value": ("nonfinite-gradients",),
    "interleaved-zero-tokens": ("padding-in-loss", "targets-shifted-twice", "targets-equal-inputs"),
    "sorted-training-data": ("constant-targets",),
    "constant-targets": ("input-ignored", "regression-on-class-numbers"),
    "running-frozen-batch-norm": ("training-mode-in-evaluation",),
    "future-tokens-in-logits": ("attention-across-documents",),
    "sync-in-every-micro-batch": (),
    "diverging-replicas": ("clipping-by-local-norm",),
    "repeated-batch": ("same-order-every-epoch",),
    "data-position-lost-on-resume": ("same-order-every-epoch",),
    "scheduler-at-wrong-rate": ("scheduler-out-of-order",),
    "update-inside-autocast": ("update-without-effect",),
    "zero-learning-rate": ("update-without-effect",),
    "updates-rounded-away": ("update-without-effect",),
}  # fmt: skip
"""One cause, one finding: where the first is found, the others are its symptoms and are left out."""


def allowed_checks(names: Iterable[str]) -> tuple[str, ...]:
    """Names of checks; raises where one is no check."""
    allowed = tuple(names)
    for name in allowed:
        if name not in CHECKS:
            raise RecipeError(f"no check is called {name!r}; known: {', '.join(CHECKS)}")
    return allowed


def run_checks(evidence: Evidence, *, recipe: str, allow: Iterable[str] = ()) -> Findings:
    """All findings, errors first; those of allowed checks, and symptoms of others, are left out."""
    allowed = allowed_checks(allow)
    found = [each for check in CHECKS.values() for each in check(evidence)]
    explained = {name for each in found for name in EXPLAINS.get(each.check, ())}
    found = [each for each in found if each.check not in explained and each.check not in allowed]
    order = ("error", "warning", "info")
    found.sort(key=lambda finding: order.index(finding.severity))
    return Findings(recipe, tuple(CHECKS), tuple(found), allowed)
