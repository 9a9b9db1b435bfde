"""Records in which every text also holds what should never be more than text."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from surefoot.records.codec import to_json
from surefoot.records.event import Event, append_event
from surefoot.records.finding import Finding, Findings
from surefoot.records.log import append_row
from surefoot.records.plan import Plan, write_plan
from surefoot.records.profile import write_profile
from surefoot.records.run import Run, write_run
from surefoot.records.watched import Watched, write_watched
from tests.reports.pages import PROFILE, STEADY, TOKENS
from tests.rows import log_row

RAN = "document.title='ran'"
MARKER = (
    f"\"'><img src=x onerror={RAN}><svg onload={RAN}><a href=\"javascript:{RAN}\" xlink:href='javascript:{RAN}'>link<b>"
    f"%{{y}}%{{fullData.name}}&lt;script>{RAN}<\\script>"
)
"""Without a slash and a dot, which cut the names of accounts and modules."""
CLOSING = f"</script></title></style></textarea><script>{RAN}</script><iframe src=//127.0.0.1:9/x></iframe>"
CONTROLS = (
    "\x1b[31m\x1b]0;title\x07\x1b]8;;http://127.0.0.1:9/\x07\r\x08\x9b2J\u202etxet\u2066[red]x[/red][link=http://a]y"
)


def hostile(record: Any, marker: str, kind: Any = None) -> Any:
    """The same record with a marker after every text and every key, but for those that name one of a few choices."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        hints = typing.get_type_hints(type(record))
        names = [field.name for field in dataclasses.fields(record)]
        return dataclasses.replace(
            record, **{name: hostile(getattr(record, name), marker, hints[name]) for name in names}
        )
    if isinstance(record, str):
        return record if typing.get_origin(kind) is Literal else record + marker
    if isinstance(record, Mapping):
        return {hostile(key, marker): hostile(value, marker) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return tuple(hostile(each, marker) for each in record)
    return record


FINDINGS = Findings("gpt", ("a",), (Finding("a", "error", "seen", "where", "why", "remedy"),))
RUN = Run(
    "", "gpt", "the next byte", "gpt", {"layers": 2, "corpus": "x"}, "failed", 1_000, "cpu", "2.13.0",
    settings={"precision": "32-true"}, steps=30, tokens=8192, seconds=3.0, first_loss=5.0, last_loss=2.0,
    reason="it stopped", choices=("a choice",), environment={"python": "3.11"}, token_ledger=TOKENS,
)  # fmt: skip
WATCHED = Watched("train.py", 3, ("Model",), 10, STEADY, STEADY, FINDINGS, device="cpu", step_seconds=(1.0,))


def hostile_run(folder: Path, marker: str) -> Path:
    """A run directory in which every text of every record has the marker behind it, and so has its own name."""
    folder.mkdir(parents=True)
    run = replace(hostile(RUN, marker), path=str(folder))
    write_run(run)
    with run.log.open("w") as file:
        for step in range(1, 31):
            append_row(file, replace(log_row(step, loss=2.0), samples_digest=marker, memory_bytes=10**9))
    append_event(run.events, hostile(Event(3, "resumed", "text", "2026-11-15"), marker))
    run.findings.write_text(to_json(hostile(FINDINGS, marker)))
    write_plan(folder, hostile(Plan("gpt", "", {}, 1_000, 8192, 1, 30, steady=STEADY), marker))
    write_profile(folder, hostile(PROFILE, marker))
    write_watched(folder, hostile(WATCHED, marker))
    run.source.write_text(f"# {marker}", errors="replace")
    return folder
