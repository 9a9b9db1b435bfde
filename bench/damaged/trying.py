"""Trying: one mutation, read by the commands that read it, and the verdict on each.

| verdict | meaning |
|---|---|
| refused | it ended with 1, 2, 74 or 75 and a message, or it went on and named what it had passed over |
| same | it was read, and all that came out is what comes out of the undamaged thing |
| shown | a record without a hash parses, all its types are right, and what it says is shown |
| accepted | damage went unnoticed: other weights, tokens or rows came out, a file under a hash was taken for whole, a record of wrong types was taken for right, or data became markup or control characters |
| executed | something that a file brings was executed |
| traceback | a Python traceback, a death by signal, or an exit code that is not documented |
| hang | it had not ended when its time was over |
"""  # noqa: E501

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from damaged.asking import TRACE, Answer

BAD = ("accepted", "executed", "traceback", "hang")
SHOWN = 50
"""After so many tries a line says how far it is."""


@dataclass(frozen=True)
class Verdict:
    """On one command. `why` says what is wrong, alike for all that have the same cause."""

    kind: str
    why: str
    answer: Answer


@dataclass(frozen=True)
class Try:
    """One mutation and the verdicts of its readers."""

    number: int
    mutation: str
    verdicts: tuple[Verdict, ...]


class Part(Protocol):
    """Something that can be damaged."""

    name: str

    def once(self, draw: random.Random, *, every: bool) -> tuple[str, list[Verdict]]:
        """One mutation, read by one of its readers, or by every one."""


@dataclass
class Toll:
    """What came of all tries of one part."""

    name: str
    tries: list[Try] = field(default_factory=list)

    def count(self) -> Counter[str]:
        """Tries by their worst verdict; each try counts once."""
        order = (*reversed(BAD), "refused", "shown", "same")
        return Counter(min((each.kind for each in one.verdicts), key=order.index) for one in self.tries)

    def failures(self) -> Iterator[tuple[str, str, list[tuple[Try, Verdict]]]]:
        """What went wrong, one entry for each cause."""
        found: dict[tuple[str, str], list[tuple[Try, Verdict]]] = {}
        for one in self.tries:
            for verdict in one.verdicts:
                if verdict.kind in BAD:
                    found.setdefault((verdict.kind, verdict.why), []).append((one, verdict))
        for (kind, why), hits in sorted(found.items(), key=lambda item: -len(item[1])):
            yield kind, why, hits


def try_all(part: Part, tries: int, seed: int, *, every: bool, only: int | None = None) -> Toll:
    """The tries of a part. Each has a generator of its own, so that one can be repeated alone."""
    toll = Toll(part.name)
    for number in range(tries) if only is None else (only,):
        mutation, verdicts = part.once(random.Random(f"{seed} {part.name} {number}"), every=every)
        toll.tries.append(Try(number, mutation, tuple(verdicts)))
        if len(toll.tries) % SHOWN == 0:
            print(f"{part.name}: {len(toll.tries)} of {tries}", file=sys.stderr, flush=True)
    return toll


def ending(answer: Answer) -> Verdict | None:
    """The verdict that an answer alone allows: it hung, executed, crashed or wrote where it must not."""
    command = answer.words[0] if answer.words else ""
    if answer.executed:
        return Verdict("executed", f"{command} executed what it read", answer)
    if answer.hung:
        return Verdict("hang", f"{command} took more than {answer.seconds:.0f} s", answer)
    if answer.crashed:
        return Verdict("traceback", f"{command}: {_raised(answer)}", answer)
    if answer.disturbed:
        return Verdict("accepted", f"{command}: {answer.disturbed}", answer)
    return None


def _raised(answer: Answer) -> str:
    """The exception and the last of surefoot's own lines that it went through; no values, which differ by try."""
    if TRACE not in answer.text:
        return f"ended with {answer.code}"
    lines = answer.text[answer.text.index(TRACE) :].splitlines()
    own = [line for line in lines if "/surefoot/" in line and line.lstrip().startswith("File")]
    place = re.search(r"surefoot/(\S+)\", line \d+, in (\S+)", own[-1]) if own else None
    error = next(
        (line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception|Interrupt)?\b.*:|\w+$", line)), ""
    )
    return f"{error.partition(':')[0][:80]} in {place[1]}:{place[2] if place else ''}" if place else error[:80]


def failure_lines(toll: Toll, seed: int) -> Iterator[str]:
    """What went wrong, each cause once, with a command that shows it."""
    for kind, why, hits in toll.failures():
        one, verdict = hits[0]
        yield f"{kind} {len(hits)} times: {why}"
        yield f"    {one.mutation[:200]}, read by `surefoot {' '.join(verdict.answer.words)[:200]}`"
        yield f"    python bench/damage.py --seed {seed} --part {toll.name} --only {one.number}"
