"""Parts of the input shuffled between samples in the last evaluation: a part that no output uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from surefoot.debug.probe.order import Change, Ran
from surefoot.debug.probe.results import Results, Verdict, name_of
from surefoot.debug.probe.verdicts.evaluation import no_copies
from surefoot.records.finding import Finding
from surefoot.records.probed import Experiment
from surefoot.units import counted

NAME = "parts of the input shuffled"
_FEW, _MANY, _MOST_PARTS = 8, 16, 40


def planned(results_look: Ran) -> list[Change]:
    """The parts to shuffle: each place of a short dimension, quarters of a long one."""
    roles = results_look.roles
    entry = roles.inputs_enter
    for pieces in (_MANY, _FEW, 4, 2):
        made = []
        for path in roles.named(entry, "input", "both"):
            shape = roles.shapes.get(f"{entry}:{path}", ())
            if path.find("[*]") < 0:
                made += [each for dim in range(1, len(shape)) for each in _cut(path, dim, shape, pieces)]
                made += [Change("part", path=path)] if len(shape) == 1 else []
        if len(made) <= _MOST_PARTS:
            return made
    return made[:_MOST_PARTS]


def _cut(path: str, dim: int, shape: Sequence[int], pieces: int) -> list[Change]:
    size = shape[dim]
    count = size if size <= (pieces if dim == len(shape) - 1 else min(pieces, _FEW)) else min(4, pieces)
    ends = [round(size * each / count) for each in range(count + 1)]
    return [Change("part", path=path, dim=dim, first=a, last=b) for a, b in pairwise(ends)] * (size > 1)


def parts(results: Results) -> Verdict:
    """Whether outputs change with every part of the input whose values changed."""
    reason = no_copies(results)
    controls = results.controls
    if not reason and (len(controls) < 2 or not controls[0].outputs):
        reason = "no model was called in the evaluation"
    if not reason and controls[0].outputs != controls[1].outputs:
        reason = "two equal evaluations returned other outputs"
    tried = [(change, ran) for change, ran in results.copies if change.kind == "part" and not ran.error and ran.changed]
    if not reason and not tried:
        reason = (results.base and results.base.no_copies) or "no input of the evaluation could be shuffled"
    if reason:
        return Verdict(Experiment(NAME, "not tried", reason))
    by_dim: dict[tuple[str, int], list[tuple[Change, bool]]] = defaultdict(list)
    for change, ran in tried:
        by_dim[change.path, change.dim].append((change, ran.outputs == controls[0].outputs))
    unused = {key: [change for change, same in cut if same] for key, cut in by_dim.items()}
    entry = results.roles.inputs_enter
    whole = [
        path
        for path in {path for path, _ in by_dim}
        if all(s for (p, _), c in by_dim.items() for _, s in c if p == path)
    ]
    found = {key: cut for key, cut in unused.items() if cut and key[0] not in whole}
    count = f"{len(tried)} parts of {counted(len({path for path, _ in by_dim}), 'input')}"
    told = "".join(f"; {name_of(path, results.roles, entry)} changes no output of the evaluation" for path in whole)
    if not found:
        used = "each changes outputs" if not whole else "the others change outputs"
        return Verdict(Experiment(NAME, "unclear" if whole else "as expected", f"{count}: {used}{told}"))
    (path, dim), cut = next(iter(found.items()))
    size = results.roles.shapes[f"{entry}:{path}"][dim]
    places = sum(each.last - each.first for each in cut)
    seen = f"{name_of(path, results.roles, entry)}: {places} of {size} places of dimension {dim} change no output"
    return Verdict(Experiment(NAME, "finding", f"{count}; {seen}"), _finding(results, seen, _spans(cut)))


def _spans(cut: Sequence[Change]) -> str:
    spans: list[list[int]] = []
    for each in sorted(cut, key=lambda each: each.first):
        if spans and spans[-1][1] == each.first:
            spans[-1][1] = each.last
        else:
            spans.append([each.first, each.last])
    return ", ".join(f"{first} to {last - 1}" if last - first > 1 else str(first) for first, last in spans)


def _finding(results: Results, seen: str, spans: str) -> Finding:
    assert results.base is not None
    return Finding(
        "unused-part-of-input",
        "warning",
        f"{seen} when they are shuffled between samples: {spans}. The other places do",
        results.base.places.get("call", "") or results.base.places.get("batch", ""),
        "the model cannot learn from what does not reach its outputs",
        "follow this part through the model: look for an index in place of a mean, a slice that is too short, or a "
        "mask that covers it",
    )
