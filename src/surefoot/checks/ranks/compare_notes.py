"""Compares the notes of all ranks: what differs between them, and what does not although it should."""

from __future__ import annotations

from typing import Any

from surefoot.checks.facts.ranks import Ranks
from surefoot.checks.ranks.gradient_averages import ratio_to_mean

FIRST_NOTES = 4
"""The first notes are written after this many updates."""
_MANY_TARGETS = 32
_MANY_EVALUATED = 4
_UNEVEN = 1.04
"""Ranks are uneven if a target of one weighs this many times more than one of another."""


def compare(found: Ranks, mine: dict[str, Any], others: list[dict[str, Any]]) -> None:
    """Writes into `found` what the notes of this rank and of the others show together."""
    everybody = [mine, *others]
    found.compared = True
    if not any(each["parted"] for each in everybody):
        found.same_samples = max(_overlap(set(mine["samples"]), each["samples"]) for each in others)
        found.same_answers = _informative(mine) and all(each["answers"] == mine["answers"] for each in others)
        found.same_places = max((_shared(mine, each) for each in others), default=0.0)
        if not all(_meet_again(mine["course"], each["course"]) for each in others):
            found.diverged = tuple(name for name in mine["first"] if any(_differ(name, mine, each) for each in others))
        first = mine["states"][0] if mine["states"] else (0, False)  # later ones diverge if shapes differ
        found.same_randomness = first[1] and all(tuple(each["states"][0]) == first for each in others if each["states"])
    norms = [each["norms"][0] for each in everybody if each["norms"]]
    local = any(_meet_again(mine["course"], each["course"]) for each in others)
    found.local_norms = tuple(norms) if len(norms) == len(everybody) and not local else ()
    _weigh(found, [each["targets"] for each in everybody])
    if all(len(each.get("evaluated", ())) >= _MANY_EVALUATED for each in everybody):
        apart = max(_overlap(set(mine["evaluated"]), each["evaluated"]) for each in others) < 0.1
        found.untold_metrics = apart and not any(each["told"] for each in everybody)
    counts = [each["batches"] for each in everybody]
    found.batch_counts = tuple(counts) if None not in counts and not _stop_together(everybody, min(counts)) else ()
    found.ratios_to_mean = _ratios(everybody)


def _stop_together(everybody: list[dict[str, Any]], fewest: int) -> bool:
    """Did all ranks end with the same number of updates, past the end of the shortest pass?"""
    ended = all("updates" in each and each["read"] >= fewest for each in everybody)
    return ended and len({each["updates"] for each in everybody}) == 1


def _overlap(mine: set[int], theirs: list[int]) -> float:
    return len(mine.intersection(theirs)) / max(1, len(mine))


def _shared(mine: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest share of a pass that another rank reads, too, from the same data set."""
    pairs = zip(mine["shares"], theirs["shares"], strict=False)
    same = [(one, other) for one, other in pairs if one and other and one["dataset"] == other["dataset"]]
    return max((_overlap(set(one["places"]), other["places"]) for one, other in same), default=0.0)


def _informative(mine: dict[str, Any]) -> bool:
    """Do targets differ between losses, and are there enough that ranks do not agree by chance?"""
    answers = mine["answers"]
    return (
        0 not in answers
        and len(set(answers)) >= FIRST_NOTES - 1
        and sum(n for n, _ in mine["targets"]) >= _MANY_TARGETS
    )


def _meet_again(mine: list[int], theirs: list[int]) -> bool:
    """Do replicas differ in a forward and agree in a later one, because they are averaged now and then?"""
    same = [one == other for one, other in zip(mine, theirs, strict=False)]
    return False in same and True in same[same.index(False) :]


def _differ(name: str, mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Do replicas of a parameter differ after an update? Skips one that differed at first and is not exchanged."""
    alone = name in mine["alone"] and mine["first"][name] != theirs["first"].get(name)
    after = [
        (prints.get(name), theirs["weights"].get(str(made), {}).get(name)) for made, prints in mine["weights"].items()
    ]
    return not alone and any(one != other for one, other in after if None not in (one, other))


def _weigh(found: Ranks, everybody: list[list[tuple[int, float]]]) -> None:
    """Checks whether a target weighs the same on all ranks, and whether all targets together weigh as much as a
    mean.
    """
    updates = [update for update in zip(*everybody, strict=False) if all(weight for _, weight in update)]
    weights = [[weight for _, weight in update] for update in updates]
    counts = [[count for count, _ in update] for update in updates]
    uneven = [n for n, each in zip(counts, weights, strict=True) if max(each) > _UNEVEN * min(each)]
    if len(updates) >= 2 and 2 * len(uneven) >= len(updates):
        found.target_counts = tuple(uneven[0])
    totals = [sum(n * w for n, w in update) / found.count for update in updates]
    if not uneven and any(max(each) > 1.01 * min(each) for each in counts):
        found.mean_weight = totals[0] if max(totals) < 1.001 * min(totals) else None


def _ratios(everybody: list[dict[str, Any]]) -> tuple[float, ...]:
    """For each update: its gradients divided by the mean over ranks. Empty if one is not a multiple of it."""
    updates = zip(*(each["gradients"] for each in everybody), strict=False)
    ratios = [ratio_to_mean([given for given, _ in update], update[0][1]) for update in updates]
    return tuple(each for each in ratios if each is not None) if None not in ratios else ()
