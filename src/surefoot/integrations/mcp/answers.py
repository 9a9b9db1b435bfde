"""Answers: what a coding assistant is told of a record: what matters first, in some 2 kB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from surefoot.costs.advice import advise, largest
from surefoot.records.codec import to_json
from surefoot.records.compared import Compared, Replayed, Scripts
from surefoot.records.explanation import Place
from surefoot.records.finding import Finding, Findings
from surefoot.records.looked import Looked, LookedModule, form_text
from surefoot.records.out_of_memory import LiveTensor, OutOfMemory
from surefoot.records.plan import Plan
from surefoot.records.snapshot import MemorySnapshot
from surefoot.records.watched import Watched
from surefoot.units import bytes_text

MOST_BYTES = 2048
"""The size of an answer as JSON."""
_T = TypeVar("_T")


class Room:
    """How many items of a list, and characters of a text, an answer has room for; counts what it leaves out."""

    def __init__(self, items: int, characters: int) -> None:
        self._items, self._characters, self.left_out = items, characters, 0

    def text(self, text: str) -> str:
        return text if len(text) <= self._characters else text[: self._characters - 3] + "..."

    def few(self, items: Sequence[_T]) -> Sequence[_T]:
        self.left_out += max(0, len(items) - self._items)
        return items[: self._items]

    def texts(self, items: Iterable[str]) -> list[str]:
        return [self.text(each) for each in self.few([*items])]

    def most(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """The largest amounts."""
        ordered = sorted(((name, each) for name, each in amounts.items() if each), key=lambda item: -item[1])
        return dict(self.few(ordered))


def fitted(make: Callable[[Room], _T]) -> _T:
    """An answer with as much as fits. The last try has room for one item of every list."""
    for items, characters in ((8, 400), (6, 240), (4, 160), (3, 120), (2, 90), (1, 60)):
        answer = make(Room(items, characters))
        if len(json.dumps(json.loads(to_json(answer)))) <= MOST_BYTES:
            break
    return answer


# -------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True)
class Range:
    """What is expected, and between what four of five such runs fall."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True)
class PlanAnswer:
    """Memory of one device; tokens and parameters of all ranks. An unknown amount is null."""

    of: str
    fits: bool | None
    device: str
    ranks: int
    layout: str
    memory_bytes: int
    device_bytes: int | None
    memory_by_account: dict[str, int]
    largest_tensor: str
    change_first: str
    parameters: int
    tokens_per_step: int
    step_seconds: Range | None
    steps: int | None
    days: Range | None
    dollars: Range | None
    assumed: list[str]
    left_out: int


def plan_answer(plan: Plan) -> PlanAnswer:
    """What a person decides by: fit, memory, time, money."""
    return fitted(lambda room: _planned(plan, room))


def _planned(plan: Plan, room: Room) -> PlanAnswer:
    peak = max((plan.init, plan.first, plan.steady), key=lambda usage: usage.peak.peak_bytes)
    holding, time, cost, fit = largest(peak), plan.time, plan.cost, plan.fit
    between = None if time is None else time.interval
    accounts = {name: int(amount) for name, amount in peak.tally.under("memory").items()}
    dollars = None if cost is None or cost.dollars is None else cost.dollars
    return PlanAnswer(
        of=room.text(plan.recipe),
        fits=None if fit is None else fit.fits,
        device="" if fit is None else fit.device,
        ranks=plan.ranks,
        layout=room.text(plan.layout),
        memory_bytes=plan.live_bytes if fit is None else fit.total_bytes,
        device_bytes=None if fit is None else fit.memory_bytes,
        memory_by_account=room.most(accounts),
        largest_tensor="" if holding is None else room.text(_held(holding.size_bytes, holding.tensor, holding.module)),
        change_first="" if holding is None else room.text(advise(holding)),
        parameters=plan.parameters,
        tokens_per_step=plan.tokens_per_step,
        step_seconds=None
        if time is None
        else _range(
            time.seconds, *((between.low_seconds, between.high_seconds) if between else (time.seconds, time.seconds))
        ),
        steps=plan.steps,
        days=None if cost is None else _range(cost.days, cost.days * cost.low, cost.days * cost.high),
        dollars=None if dollars is None or cost is None else _range(dollars, dollars * cost.low, dollars * cost.high),
        assumed=room.texts([*plan.script, *plan.assumptions]),
        left_out=room.left_out,
    )


def _range(expected: float, low: float, high: float) -> Range:
    return Range(*(float(f"{each:.4g}") for each in (low, expected, high)))


def _held(size: int, tensor: str, module: str) -> str:
    return " ".join(filter(None, (bytes_text(size), tensor, f"of {module}" if module else "")))


# ------------------------------------------------------------------------------------------------------- watch


@dataclass(frozen=True)
class Found:
    """One finding: what was seen, on which line, why it hurts, what to do."""

    check: str
    severity: str
    where: str
    seen: str
    why: str
    remedy: str


@dataclass(frozen=True)
class WatchAnswer:
    """The findings, errors first, and what was examined. No finding in what was not examined says nothing."""

    of: str
    updates: int | None
    trained: bool
    errors: int
    findings: list[Found]
    examined: list[str]
    not_examined: list[str]
    device: str
    step_seconds: float | None
    peak_bytes: int | None
    failure: str
    left_out: int


def watch_answer(watched: Watched) -> WatchAnswer:
    """The findings of a script that ran."""
    seconds = watched.step_seconds
    return fitted(
        lambda room: _watched(
            watched.findings,
            room,
            of=watched.script,
            updates=watched.steps,
            trained=watched.trained,
            device=watched.device,
            step_seconds=float(f"{sum(seconds) / len(seconds):.4g}") if seconds else None,
            peak_bytes=None if watched.steady is None else watched.steady.peak.peak_bytes,
            failure=watched.failure or watched.findings.failure,
        )
    )


def check_answer(findings: Findings) -> WatchAnswer:
    """The findings of a recipe of which a few tiny steps ran."""
    return fitted(lambda room: _watched(findings, room, of=findings.recipe, failure=findings.failure))


def _watched(
    findings: Findings,
    room: Room,
    *,
    of: str,
    failure: str,
    updates: int | None = None,
    trained: bool = True,
    device: str = "",
    step_seconds: float | None = None,
    peak_bytes: int | None = None,
) -> WatchAnswer:
    return WatchAnswer(
        of=room.text(of),
        updates=updates,
        trained=trained,
        errors=len(findings.errors),
        findings=[_found(each, room) for each in room.few(findings.by_severity)],
        examined=room.texts(findings.examined),
        not_examined=room.texts(findings.not_examined),
        device=device,
        step_seconds=step_seconds,
        peak_bytes=peak_bytes,
        failure=room.text(failure),
        left_out=room.left_out,
    )


def _found(finding: Finding, room: Room) -> Found:
    texts = (finding.where, finding.seen, finding.why, finding.remedy)
    return Found(finding.check, finding.severity, *map(room.text, texts))


# ----------------------------------------------------------------------------------------------------- explain


@dataclass(frozen=True)
class ExplainAnswer:
    """Why a run had no memory left, or what a snapshot of a GPU's memory holds."""

    of: str
    said: str
    where: str
    live_bytes: int | None
    limit_bytes: int | None
    memory_by_account: dict[str, int]
    largest_tensors: list[str]
    kept_by: list[str]
    would_fit: list[str]
    notes: list[str]
    left_out: int


def explain_answer(found: OutOfMemory | MemorySnapshot) -> ExplainAnswer:
    """The bytes and who holds them."""
    if isinstance(found, OutOfMemory):
        return fitted(lambda room: _out_of_memory(found, room))
    return fitted(lambda room: _snapshot(found, room))


def _out_of_memory(found: OutOfMemory, room: Room) -> ExplainAnswer:
    return ExplainAnswer(
        of=room.text(found.run),
        said=room.text(found.message),
        where=room.text(_line(found.place)),
        live_bytes=found.live_bytes,
        limit_bytes=found.limit_bytes,
        memory_by_account=room.most(found.by_account()),
        largest_tensors=room.texts(map(_tensor, found.largest)),
        kept_by=room.texts(
            f"{each.count} in {each.name}: {', '.join(map(_line, each.places))}" for each in found.keepers
        ),
        would_fit=room.texts(each.command for each in found.fits),
        notes=room.texts(found.notes),
        left_out=room.left_out,
    )


def _snapshot(found: MemorySnapshot, room: Room) -> ExplainAnswer:
    accounts: dict[str, int] = {}
    for each in found.held:
        accounts[each.account] = accounts.get(each.account, 0) + each.bytes
    refused = found.refused
    return ExplainAnswer(
        of=room.text(found.file),
        said="" if refused is None else f"an allocation of {bytes_text(refused.asked_bytes)} failed",
        where="" if refused is None else room.text(_line(refused.place)),
        live_bytes=found.requested_bytes,
        limit_bytes=None,
        memory_by_account=room.most({**accounts, "fragmented": found.fragmented_bytes, "cached": found.cached_bytes}),
        largest_tensors=room.texts(map(_tensor, found.largest)),
        kept_by=[],
        would_fit=[],
        notes=room.texts(found.notes),
        left_out=room.left_out,
    )


def _tensor(each: LiveTensor) -> str:
    held = _held(each.bytes, each.tensor, each.module)
    return " ".join(filter(None, (f"{each.count} x" if each.count > 1 else "", held, _line(each.place))))


def _line(place: Place | None) -> str:
    return "" if place is None else f"{place.file}:{place.line} {place.code.strip()}"


# -------------------------------------------------------------------------------------------------------- look


@dataclass(frozen=True)
class Module:
    """A module that ran: the form of its output, and what its gradient and update were."""

    name: str
    kind: str
    output: str
    parameters: int
    gradient_norm: float | None
    update_ratio: float | None


@dataclass(frozen=True)
class LookAnswer:
    """One step, module by module; of one tensor more, if it was named."""

    of: str
    loss: float | None
    modules: list[Module]
    tensor: dict[str, str]
    left_out: int


def look_answer(looked: Looked, tensor: str | None) -> LookAnswer:
    """The modules in the order in which they ran."""
    return fitted(
        lambda room: LookAnswer(
            of=room.text(looked.of),
            loss=looked.loss,
            modules=[_module(each, room) for each in room.few(looked.modules)],
            tensor={} if tensor is None else _named(looked, tensor, room),
            left_out=room.left_out,
        )
    )


def _module(each: LookedModule, room: Room) -> Module:
    gradient, update = (None, None) if each.layer is None else (each.layer.gradient_norm, each.layer.update_ratio)
    output = room.text(", ".join(map(form_text, each.outputs)))
    return Module(room.text(each.name), each.kind, output, each.parameters, gradient, update)


def _named(looked: Looked, name: str, room: Room) -> dict[str, str]:
    found = looked.tensor(name)
    if found is None:
        return {"unknown": room.text(f"{name}; known: {', '.join(each.name for each in looked.tensors)}")}
    lists = {"shares storage with": found.shares, "read by": found.read_by}
    return {
        "name": room.text(found.name),
        "form": form_text(found.form),
        "made by": room.text(found.made_by),
        "storage": bytes_text(found.storage_bytes),
        "requires grad": str(found.requires_grad).lower(),
        **{what: ", ".join(room.texts(names)) for what, names in lists.items()},
    }


# ----------------------------------------------------------------------------------------------------- compare


@dataclass(frozen=True)
class CompareAnswer:
    """Whether two runs, or two scripts, compute the same; else where they part, and what differs."""

    first: str
    second: str
    agree: bool
    steps: int
    parted_in_step: int
    cause: str
    said: str
    where: str
    unlike: list[str]
    left_out: int


def compare_answer(found: Compared | Scripts) -> CompareAnswer:
    """The first difference."""
    return fitted(lambda room: _compared(found, room))


def _compared(found: Compared | Scripts, room: Room) -> CompareAnswer:
    unlike: list[str] = []
    replayed: Scripts | Replayed | None
    if isinstance(found, Scripts):
        steps, parted_in, replayed = found.updates, found.step, found
    else:
        steps, parted_in = found.steps, 0 if found.difference is None else found.difference.step
        replayed, fields = found.replayed, () if found.difference is None else found.difference.fields
        unlike = [f"{each.what}: {each.first} | {each.second}" for each in (*found.unlike, *fields)]
    parted = None if replayed is None else replayed.parted
    return CompareAnswer(
        first=room.text(found.first),
        second=room.text(found.second),
        agree=found.agrees,
        steps=steps,
        parted_in_step=parted_in,
        cause="" if replayed is None else replayed.cause,
        said=room.text(getattr(found, "not_replayed", "") if replayed is None else replayed.said),
        where="" if parted is None else room.text(f"{parted.operation} in {parted.module}: {parted.second_line}"),
        unlike=room.texts(unlike),
        left_out=room.left_out,
    )
