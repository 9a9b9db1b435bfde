"""Coverage: which parts of a loop were examined, and which were not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from surefoot.checks.engine.assembly import Observers
from surefoot.checks.engine.scene import Scene, several
from surefoot.checks.facts import Facts
from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.ranks import RankFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.loop.compiled_code import CompiledCode
from surefoot.checks.loop.torch_files import TorchFiles
from surefoot.checks.marks import loss_line
from surefoot.checks.samples.pairs import Pairs
from surefoot.records.finding import UNKNOWN_LOSS, Findings
from surefoot.units import counted

_RARE = 1 / 3
"""Forwards after more than this share of the updates belong to the step."""
_KNOWN = {
    "divergence": "the divergence of a latent", "spread": "a learned variance", "advantage": "advantages",
    "returns": "returns", "final states": "values of final states", "ratio": "ratios of a policy",
    "similarity": "similarities", "noise": "shares of noise", "opponents": "a generator and its discriminator",
}  # fmt: skip
"""Terms with a law of their own, in words."""
Part = tuple[bool, str]
"""Whether a part was examined, and what it is."""


def covered(scene: Scene, observers: Observers, facts: Facts, found: Findings) -> Findings:
    """The findings, with the parts of the loop that the checks looked at and those that they did not."""
    parts = [
        *_updates(scene.updates, scene.rested_after),
        *_losses(facts[LoopFacts], facts[LossFacts], scene.source),
        *_data(facts[SampleFacts], arrays=bool(observers[Pairs].places), made=scene.updates),
        *_evaluation(facts[EvaluationFacts], scene.updates),
        *_files(observers[TorchFiles]),
        *_ranks(facts[RankFacts]),
        *_memory(scene.left_out),
        *([(False, "code as torch.compile makes it (it ran uncompiled)")] if observers[CompiledCode].seen else []),
    ]
    seen, unseen = (tuple(part for examined, part in parts if examined is which) for which in (True, False))
    return replace(found, examined=seen, not_examined=unseen)


def _updates(made: int, rested: int | None) -> Iterator[Part]:
    if not made:
        yield False, "updates (no optimizer made one)"
    elif rested is None or rested >= made:
        yield True, counted(made, "update")
    else:
        yield True, f"{rested:,} of {counted(made, 'update')}"
        yield False, f"updates after the first {rested:,}"


def _losses(loop: LoopFacts, losses: LossFacts, source: str) -> Iterator[Part]:
    """The loss functions that were recognised, and the lines of backwards that none of them leads to."""
    weighed = [each for each in losses.losses if each.weights]
    known = {each.backward for each in weighed}
    by_hand = {each.backward for each in losses.aims} | {each.backward for each in losses.likelihoods}
    lines: dict[str, bool] = {}
    for number, backward in enumerate(loop.backwards):
        if backward.followed_by_update or backward.in_update:
            understood = number in known or number in by_hand
            lines[backward.where] = lines.get(backward.where, False) or understood
    names = sorted({each.function for each in weighed}) + ["a loss by hand"] * bool(by_hand - known)
    yield from ((True, name) for name in names)
    for where, understood in lines.items():
        if not understood:
            yield False, f"{UNKNOWN_LOSS} at {loss_line(where, source) or 'the recipe'}"
    kinds = {each.kind for each in losses.known}
    yield from ((True, words) for kind, words in _KNOWN.items() if kind in kinds)
    judged = {each.where for each in losses.known if each.kind == "returns"}
    drawn = dict.fromkeys(each.where for each in losses.likelihoods if not each.of_data and each.where not in judged)
    yield from ((False, f"the rewards that weigh log-probabilities at {where}") for where in drawn)


def _data(samples: SampleFacts, *, arrays: bool, made: int) -> Iterator[Part]:
    loaders = [each for each in samples.loaders if each.role != "unknown"]
    if loaders:
        yield True, counted(len(loaders), "data loader")
    elif arrays:
        yield True, "arrays of samples"
    elif made:
        yield False, "where samples come from (no DataLoader or array was recognised)"


def _evaluation(evaluation: EvaluationFacts, made: int) -> Iterator[Part]:
    """Forwards without gradients of a trained model or, now and then, of its copy. A teacher runs in every step."""
    outside = [each for each in evaluation.evaluations if not each.in_step]
    copies = {each.update for each in outside if each.copied}
    seen = any(each.trained for each in outside) or 0 < len(copies) <= _RARE * made
    yield (True, "evaluation") if seen else (False, "evaluation (none without gradients)")


def _files(files: TorchFiles) -> Iterator[Part]:
    if files.saved or files.loaded:
        times = {"saved": files.saved, "loaded": files.loaded}
        yield True, ", ".join(f"{counted(often, 'file')} {done}" for done, often in times.items() if often)
    if not files.loaded:
        yield False, "resuming (no file was loaded)"


def _memory(left_out: Iterable[str]) -> Iterator[Part]:
    if words := ", ".join(left_out):
        yield False, f"{words} (too little free memory on the device)"


def _ranks(ranks: RankFacts) -> Iterator[Part]:
    if ranks.ranks is not None and ranks.ranks.compared:
        yield True, counted(ranks.ranks.count, "rank")
    elif several() or ranks.ranks is not None:
        yield False, "the other ranks (their notes did not arrive)"
