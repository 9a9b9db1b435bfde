"""Makes control characters in a record's text visible, so that they cannot act on a terminal or a page."""

import re

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1: colours, cursors, titles, clipboards, bells
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # text directions, which make text look different from what it is
    "\u2028\u2029\ud800-\udfff]"  # rare line ends; lone surrogates, which cannot be printed
)


def visible(text: str) -> str:
    """The same text with `\\x1b` for an escape character, and so on. Tabs and line feeds stay."""
    return _CONTROL.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
