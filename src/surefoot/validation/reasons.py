"""Why something failed, in one line that names no path, no host and no user of this machine."""

from __future__ import annotations

import getpass
import re
import signal
import socket

MOST = 300
_FOLDERS = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][\w.@+~-]+)+[/\\](?=[\w.@+~-])")
"""The folders of an absolute path; its last part says enough."""


def reason_of(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    return without_places(f"{type(error).__name__}: {error}")


def without_places(text: str) -> str:
    """The first line of a text, without folders and without the names of this host and user."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = _FOLDERS.sub("", line)
    if user := _user():
        line = re.sub(rf"\b{re.escape(user)}\b", "this user", line)
    if (host := socket.gethostname()) and host != "localhost":
        line = re.sub(rf"\b{re.escape(host)}\b", "this host", line)
    return line if len(line) <= MOST else f"{line[: MOST - 1]}…"


def _user() -> str:
    """The name of this user; empty if the system has none for it, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def reason_of_end(code: int, said: str) -> str:
    """Why a process ended with this code: a signal, or the last line that it printed."""
    if code < 0:
        name = signal.Signals(-code).name
        more = ": out of host memory?" if name == "SIGKILL" else ""
        return f"the process was ended by {name}{more}"
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
    return without_places(f"the process ended with {code}: {last}")
