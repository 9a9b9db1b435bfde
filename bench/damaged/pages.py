"""Pages: hostile strings in the records of a run, and the HTML page that is written from them.

The same places hold a hostile string once and a harmless word once. Both pages must have the same elements with the
same attributes: then nothing in a record has become markup. Where there is a browser, some pages are opened in it too,
with a server that notes every request.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from damaged.asking import Answer, Place, ask
from damaged.conforming import RECORDS, fits
from damaged.mutations import got, places_in, put
from damaged.runs import Runs
from damaged.trying import Verdict, ending

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
WORD = "word"
FILES = tuple(RECORDS)


class Pages:
    """A page written from records in which some strings are hostile."""

    name = "pages"

    def __init__(self, place: Place, seconds: float, runs: Runs) -> None:
        self.place, self.seconds, self.runs = place, seconds, runs
        self.server, self.port = _server(place.canary)

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: Any) -> None:
        os.kill(self.server, signal.SIGKILL)
        os.waitpid(self.server, 0)

    def once(self, draw: random.Random, *, every: bool) -> tuple[str, list[Verdict]]:
        hostile, file = hostile_markup(draw, self.port), draw.choice(FILES)
        state, written = draw.getstate(), []
        for text in (WORD, hostile):
            draw.setstate(state)
            folder = self.runs._fresh("finished")
            changed = changed_places(folder / file, text, draw)
            if file == "log.jsonl" or draw.random() < 0.3:
                (folder / "recipe.py").write_text(f"# {text}\n")
            answer = ask(self.place, ["report", "run", "--html", "page.html"], seconds=self.seconds)
            written.append((answer, _read(self.place.work / "page.html")))
        mutation = f"{file}: {', '.join(changed[:3]) or 'recipe.py'} = {hostile[:60]!r}"
        return mutation, [self._verdict(*written, hostile, look=every and draw.random() < 0.1)]

    def _verdict(self, tame: tuple[Answer, str], wild: tuple[Answer, str], hostile: str, *, look: bool) -> Verdict:
        (usual, before), (answer, after) = tame, wild
        if (ended := ending(answer) or ending(usual)) is not None:
            return ended
        if answer.code != 0:
            return Verdict("refused", "", answer)
        if usual.code == 0 and (new := added(elements(before), elements(after))):
            runs = any(tag == "script" or any(name.startswith("on") for name in names) for tag, names in new)
            return Verdict("executed" if runs else "accepted", f"report --html let data become {new[0]}", answer)
        if hostile in json.dumps(figures(after), ensure_ascii=False).replace('\\"', '"') and "<a" in hostile:
            return Verdict("accepted", "report --html let data become a link in a figure", answer)
        if look and BROWSER and self._opened():
            return Verdict("executed", "a page asked the network for something", answer)
        return Verdict("shown", "", answer)

    def _opened(self) -> bool:
        """Whether a page, opened in a browser, reaches the server."""
        self.place.canary.unlink(missing_ok=True)
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
        profile = f"--user-data-dir={self.place.root / 'browser'}"
        page = (self.place.work / "page.html").as_uri()
        words = [str(BROWSER), *options, profile, "--virtual-time-budget=5000", "--dump-dom", page]
        subprocess.run(words, capture_output=True, timeout=240, check=False)
        return self.place.canary.exists()


def hostile_markup(draw: random.Random, port: int) -> str:
    """Markup that runs a script or asks a server, after something that may end what it stands in."""
    ask_server = f"fetch('http://127.0.0.1:{port}/')"
    ends = draw.choice(
        ["", '">', "'>", "</script>", "</title>", "</style>", "-->", "]]>", "</td></table>", "&quot;>", "<br>"]
    )
    markup = draw.choice([
        f"<script>{ask_server}</script>",
        f'<img src=x onerror="{ask_server}">',
        f"<svg onload={ask_server}>",
        f'<iframe src="http://127.0.0.1:{port}/"></iframe>',
        f'<form action="http://127.0.0.1:{port}/"><input autofocus onfocus="{ask_server}"></form>',
        f'<a href="http://127.0.0.1:{port}/">here</a>',
        f'<meta http-equiv="refresh" content="0;url=http://127.0.0.1:{port}/">',
        f'<link rel=stylesheet href="http://127.0.0.1:{port}/">',
        f'" onmouseover="{ask_server}" x="',
        f"' autofocus onfocus='{ask_server}' x='",
        "<!--",
        "<base href='http://127.0.0.1/'>",
    ])  # fmt: skip
    return ends + markup


def changed_places(file: Path, text: str, draw: random.Random) -> list[str]:
    """Puts a text into some or all strings and names of a record, wherever the record allows any text."""
    if not file.exists():
        return []
    lines, changed = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()], []
    share = draw.choice([0.1, 0.5, 1.0])
    for number, line in enumerate(lines):
        value = json.loads(line)
        value |= {"digest": ""} if "digest" in value else {}
        for at in places_in(value):
            inside = got(value, at)
            if isinstance(inside, str) and inside and draw.random() < share:
                put(value, at, text)
                if fits(RECORDS[file.name], value):
                    changed.append(".".join(map(str, at)))
                else:
                    put(value, at, inside)
        lines[number] = json.dumps(_renamed(value, file.name, text, draw.random() < share))
    file.write_text("\n".join(lines) + "\n")
    return changed


def _renamed(value: Any, name: str, text: str, wanted: bool) -> Any:
    """The record with a hostile name in every mapping that takes any name."""
    if not wanted:
        return value
    for at in reversed([each for each in places_in(value) if isinstance(got(value, each), dict)]):  # inner ones first
        inside = got(value, at)
        if not inside:
            continue
        key = next(iter(inside))
        inside[text] = inside.pop(key)
        if not fits(RECORDS[name], value):
            inside[key] = inside.pop(text)
    return value


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", ()))


def elements(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """The elements of a page with the names of their attributes, in order."""
    parser = _Elements()
    parser.feed(page.replace(_plotly(), ""))  # 4.9 MB of script, the same in every page
    return parser.found


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    found: str = get_plotlyjs()
    return found


def added(before: list[Any], after: list[Any]) -> list[Any]:
    """Elements that one page has and the other has not."""
    return list((Counter(after) - Counter(before)).elements())


def figures(page: str) -> Any:
    """The data of the charts."""
    begin = page.index('id="figures">') + len('id="figures">')
    return json.loads(page[begin : page.index("</script>", begin)])


def _read(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""


def _server(canary: Path) -> tuple[int, int]:
    """A process that creates the canary whenever anybody asks it for anything."""

    class Noting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            canary.touch()
            self.send_error(404)

        do_POST = do_HEAD = do_OPTIONS = do_GET

        def log_message(self, *_: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Noting)
    pid = os.fork()
    if pid == 0:
        server.serve_forever()
        os._exit(0)
    server.server_close()
    return pid, server.server_address[1]
