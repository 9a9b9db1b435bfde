"""HTML that escapes whatever is put into it, unless it is HTML of our own."""

from collections.abc import Iterable
from html import escape
from typing import Any

from surefoot.records.visible import visible


class Markup(str):
    """HTML that `markup` has made."""

    __slots__ = ()


def markup(template: str, *parts: Any, **named: Any) -> Markup:
    """`markup('<b class="{}">{}</b>', kind, text)`: parts that are no `Markup` are escaped, quotes too."""
    return Markup(template.format(*map(_safe, parts), **{name: _safe(part) for name, part in named.items()}))


def joined(parts: Iterable[Any]) -> Markup:
    """One after the other, escaped in the same way."""
    return Markup("".join(map(_safe, parts)))


def _safe(part: Any) -> str:
    return part if isinstance(part, Markup) else escape(visible(str(part)))
