"""A hub on loopback, for tests: it serves repositories of real files as huggingface_hub asks for them."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LARGE = 20_000
"""Larger files stand elsewhere: the hub redirects to them, and states their size and hash."""
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_INFO = re.compile(r"/api/models/([^/]+/[^/]+)/revision/([^/?]+)")


@dataclass
class Hub:
    """Repositories: by name, their commits in order, each a dict of files. The last commit is `main`."""

    commits: dict[str, list[tuple[str, dict[str, bytes]]]] = field(default_factory=dict)
    licence: str = "apache-2.0"
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    """Bytes by the name of a file."""
    cut: dict[str, int] = field(default_factory=dict)
    """Files whose transfer ends after so many bytes, as long as they stand here."""
    damaged: set[str] = field(default_factory=set)
    held: dict[str, threading.Event] = field(default_factory=dict)
    """Files whose transfer waits, in the middle, until the event is set."""
    half: threading.Event = field(default_factory=threading.Event)
    """Set when a held file has sent its first half."""
    url: str = ""

    def add(self, name: str, folder: Path, **changed: bytes | None) -> str:
        """A commit with the files of a folder, and its hash. A changed file may be left out by None."""
        files = {each.name: each.read_bytes() for each in sorted(folder.iterdir()) if each.is_file()}
        for file, content in changed.items():
            files.pop(file, None)
            if content is not None:
                files[file] = content
        listed = self.commits.setdefault(name, [])
        commit = hashlib.sha1(json.dumps([name, len(listed), sorted(files)]).encode()).hexdigest()
        listed.append((commit, files))
        return commit

    def files_of(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        listed = self.commits.get(name, [])
        return next((each for each in reversed(listed) if revision in ("main", each[0])), None)


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append((self.command, path))
            if path.startswith("/large/"):
                return self._large(path.removeprefix("/large/"), body=body)
            match = _INFO.fullmatch(path) or _FILE.fullmatch(path)
            if match is None or match[1] not in hub.commits:
                return self._refuse("RepoNotFound")
            found = hub.files_of(match[1], match[2])
            if found is None:
                return self._refuse("RevisionNotFound")
            if path.startswith("/api"):
                return self._send(json.dumps(self._info(match[1], *found)).encode(), "info", body=body)
            commit, files = found
            if match[3] not in files:
                return self._refuse("EntryNotFound", {"X-Repo-Commit": commit})
            content = files[match[3]]
            if len(content) <= LARGE:
                more = {"X-Repo-Commit": commit, "ETag": f'"{_sha1(content)}"'}
                return self._send(content, match[3], body=body, more=more)
            self.send_response(302)
            for header, value in {
                "X-Repo-Commit": commit,
                "X-Linked-Size": str(len(content)),
                "X-Linked-Etag": f'"{_sha256(content)}"',
                "Location": f"{hub.url.replace('127.0.0.1', 'localhost')}/large/{match[1]}/{commit}/{match[3]}",
                "Content-Length": "0",
            }.items():
                self.send_header(header, value)
            self.end_headers()

        def _info(self, name: str, commit: str, files: dict[str, bytes]) -> dict[str, Any]:
            siblings = [
                {
                    "rfilename": file,
                    "size": len(content),
                    "blobId": _sha1(content),
                    **(
                        {"lfs": {"size": len(content), "sha256": _sha256(content), "pointerSize": 130}}
                        if len(content) > LARGE
                        else {}
                    ),
                }
                for file, content in files.items()
            ]
            card = {"license": hub.licence} if hub.licence else {}
            return {"id": name, "sha": commit, "siblings": siblings, "cardData": card, "private": False, "tags": []}

        def _large(self, place: str, *, body: bool) -> None:
            org, name, commit, file = place.split("/")
            found = hub.files_of(f"{org}/{name}", commit)
            assert found is not None
            self._send(found[1][file], file, body=body, more={"ETag": f'"{_sha256(found[1][file])}"'})

        def _send(self, content: bytes, name: str, *, body: bool, more: dict[str, str] | None = None) -> None:
            first = int((re.findall(r"bytes=(\d+)-", self.headers.get("Range") or "") or [0])[0])
            if name in hub.damaged:
                content = bytes(len(content))
            self.send_response(206 if first else 200)
            for header, value in {
                **(more or {}),
                "Content-Length": str(len(content) - first),
                "Accept-Ranges": "bytes",
                **({"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"} if first else {}),
            }.items():
                self.send_header(header, value)
            self.end_headers()
            if not body:
                return
            end = min(len(content), hub.cut.get(name, len(content)))
            middle = max(first, len(content) // 2)
            self._write(name, content[first : min(middle, end)])
            if name in hub.held:
                hub.half.set()
                hub.held[name].wait(60)
            self._write(name, content[min(middle, end) : end])
            if end < len(content):
                self.close_connection = True

        def _write(self, name: str, content: bytes) -> None:
            try:
                self.wfile.write(content)
                self.wfile.flush()
                hub.sent[name] = hub.sent.get(name, 0) + len(content)
            except OSError:  # whoever asked is gone
                self.close_connection = True

        def _refuse(self, code: str, more: dict[str, str] | None = None) -> None:
            self.send_response(404)
            for header, value in {**(more or {}), "X-Error-Code": code, "Content-Length": "0"}.items():
                self.send_header(header, value)
            self.end_headers()

    return Handler


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub on a free port, until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        for each in hub.held.values():
            each.set()
        server.shutdown()
        server.server_close()
        thread.join()
