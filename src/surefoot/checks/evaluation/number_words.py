"""Number words: what the name of a number says: which metric it is, and of which part of the data.

A name counts only if every word of it is known. `domain accuracy`, `best loss` and `D loss` follow laws of their own,
and no rule may judge them as it judges an accuracy or a loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from surefoot.checks.facts.series import LOSSES

_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")
_TRAINING = frozenset({"train", "training", "trn"})
_HELD_OUT = frozenset({"val", "valid", "validation", "dev", "eval", "evaluation", "test", "testing", "heldout"})
_FILLING = frozenset(
    {
        "a", "all", "at", "average", "avg", "batch", "before", "after", "cur", "current", "data", "dataset", "epoch",
        "epochs", "final", "initial", "is", "iter", "iteration", "k", "last", "macro", "mean", "micro", "of", "on",
        "overall", "per", "running", "samples", "score", "set", "split", "step", "steps", "the", "token", "tokens",
        "top", "total", "untrained", "was",
    }
)  # fmt: skip
"""Words that leave the meaning of a metric as it is."""
_OPEN = frozenset({"after", "at", "of", "on", "per", "top"})
"""After these a number is no value: `recall at 10`."""
_METRICS = {
    **dict.fromkeys(("acc", "accuracy", "accuracies", "accu"), "accuracy"),
    **dict.fromkeys(("auc", "auroc"), "auc"),
    **dict.fromkeys(("f1", "fscore"), "f1"),
    **dict.fromkeys(("iou", "miou", "jaccard"), "iou"),
    **dict.fromkeys(("pearson", "spearman", "corr", "correlation"), "correlation"),
    **dict.fromkeys(("ce", "xent", "crossentropy"), "cross entropy"),
    **dict.fromkeys(("ppl", "perplexity"), "perplexity"),
    **dict.fromkeys(("wer", "cer"), "error rate"),
    **{word: word for word in ("bce", "coverage", "ctc", "dice", "loss", "mae", "map", "mape", "mrr", "mse", "ndcg")},
    **{word: word for word in ("nll", "precision", "r2", "recall", "rmse")},
    "picp": "coverage",
    "losses": "loss",
}


@cache
def kind_and_phase(name: tuple[str, ...]) -> tuple[str, str]:
    """Which metric a name names, empty if it is not certain, and its part of the data: "train", "held out" or none."""
    words = [each.lower() for word in name for each in _PIECES.findall(word)]
    joined = re.sub(r"\b(before|after) training\b", "", " ".join(words))
    joined = joined.replace("held out", "heldout").replace("cross entropy", "ce").replace("error rate", "wer")
    joined = joined.replace("roc auc", "auc").replace("f 1", "f1").replace("r 2", "r2").replace("m iou", "iou")
    words = joined.replace("log loss", "ce").split()
    if not words or words[-1] in _OPEN:
        return "", ""
    phases = {_phase(word) for word in words} - {""}
    kinds = {_METRICS[word] for word in words if word in _METRICS}
    if len(kinds) == 2 and "loss" in kinds and kinds <= LOSSES:  # `ctc loss` is the same as `ctc`
        kinds -= {"loss"}
    known = all(word in _METRICS or word in _FILLING or _phase(word) or word.isdigit() for word in words)
    return (kinds.pop() if known and len(kinds) == 1 and len(phases) < 2 else ""), "".join(phases)


def phase_in(words: Iterable[str]) -> str:
    """The part of the data that the last of these words names, if one of them does."""
    found = [_phase(each.lower()) for word in words for each in _PIECES.findall(word)]
    return next((each for each in reversed(found) if each), "")


def _phase(word: str) -> str:
    return "train" if word in _TRAINING else "held out" if word in _HELD_OUT else ""
