"""Records in which every text also holds what should never be more than text."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Literal

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
