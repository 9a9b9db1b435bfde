"""Colours what commands print in built pages, as a terminal does: findings, errors, and whether a plan fits."""

import re
from pathlib import Path

_BLOCK = re.compile(r"(<pre><span></span><code>)(.*?)(</code></pre>)", re.DOTALL)
_SEVERITY = re.compile(r'(^|<span class="go">)(error|warning|info)(?=:| [a-z0-9]+(?:-[a-z0-9]+)+\b)', re.MULTILINE)
_FITS = re.compile(r"(^|<span class=\"go\">)(\S+ )(fits|does not fit)(?= \S+,)", re.MULTILINE)
_OF_FIT = {"fits": "good", "does not fit": "error"}


def colour_site(site: Path) -> None:
    """All pages."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        coloured = coloured_page(text)
        if coloured != text:
            page.write_text(coloured, encoding="utf-8")


def coloured_page(text: str) -> str:
    """A page with coloured output. Code has the colours of its own language, and stays."""
    return _BLOCK.sub(lambda block: block[1] + _coloured(block[2]) + block[3], text)


def _coloured(code: str) -> str:
    if "<span" in code and 'class="go"' not in code:
        return code
    code = _SEVERITY.sub(lambda found: f"{found[1]}{_span(found[2], found[2])}", code)
    return _FITS.sub(lambda found: f"{found[1]}{found[2]}{_span(_OF_FIT[found[3]], found[3])}", code)


def _span(kind: str, word: str) -> str:
    return f'<span class="surefoot-{kind}">{word}</span>'
