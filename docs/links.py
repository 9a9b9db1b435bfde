"""Checks a built site: links lead to its files, anchors exist, and no page loads anything from elsewhere."""

from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
NAMED_ONLY = ("canonical", "alternate", "preconnect")  # what a <link> may name without loading it


class _Page(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for value in (given.get("id"), given.get("name")) if value}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if given.get("rel") not in NAMED_ONLY:
            self.loads += [value for name, value in attrs if (tag, name) in LOADED and value]


@cache
def _read(file: Path) -> _Page:
    return _Page(file.read_text(encoding="utf-8"))


def broken_links(site: Path) -> Iterator[str]:
    """One line for each link that leads nowhere and each file that a page would fetch from elsewhere."""
    for file in sorted(site.rglob("*.html")):
        if file.name == "404.html":  # its links begin with the root of a server
            continue
        page, name = _read(file), file.relative_to(site)
        yield from (f"{name} loads {each} from elsewhere" for each in page.loads if urlsplit(each).netloc)
        for link in (*page.loads, *page.links):
            reason = _broken(link, file)
            if reason:
                yield f"{name}: {link} {reason}"


def _broken(link: str, file: Path) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = file.parent / unquote(parts.path) if parts.path else file
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return "leads to no file"
    anchor = unquote(parts.fragment)
    skip = not anchor or anchor.startswith(("__", ":~:")) or target.suffix != ".html"
    return "" if skip or anchor in _read(target).ids else "names an anchor that is not there"
