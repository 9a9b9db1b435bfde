"""HTML templates that escape everything except our own HTML."""

from collections.abc import Iterable
from html import escape
from typing import Any

from surefoot.reports.visible import visible


class Markup(str):
    """HTML that `markup` made."""

    __slots__ = ()


def markup(template: str, *parts: Any, **named: Any) -> Markup:
    """`markup('<b class="{}">{}</b>', kind, text)`: escapes parts that are not `Markup`, quotes included."""
    return Markup(template.format(*map(_safe, parts), **{name: _safe(part) for name, part in named.items()}))


def joined(parts: Iterable[Any]) -> Markup:
    """Joins parts, escaped in the same way."""
    return Markup("".join(map(_safe, parts)))


def _safe(part: Any) -> str:
    return part if isinstance(part, Markup) else escape(visible(str(part)))
