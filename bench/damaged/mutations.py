"""Mutations: one thing that is wrong with one file of a folder, drawn by a generator with a seed."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from damaged.asking import Place

SPARSE_BYTES = 1 << 40
DEEP = 100_000
RELATIVE_OUTSIDE = "../../../../outside/secret.txt"


@dataclass(frozen=True)
class Mutation:
    """What was done, to which file of a folder."""

    kind: str
    file: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.file}" + (f" ({self.about})" if self.about else "")


Draw = random.Random
Change = Callable[[Path, Place, Draw], str | None]


def hostile_strings(place: Place) -> list[str]:
    """Strings that are code, markup or a path to whoever does not take them for text."""
    touch = f"touch {place.canary}"
    return [
        "<script>fetch('http://127.0.0.1:9/canary')</script>",
        '"><img src=x onerror="fetch(\'http://127.0.0.1:9/canary\')">',
        "</script><script>alert(1)</script>",
        "' onmouseover='alert(1)",
        "javascript:alert(1)",
        "\x1b]0;owned\x07\x1b[2J\x1b[31mred",
        "\x9b31m\x08\x08\x00\r",
        "[bold red]markup[/] [link=http://127.0.0.1:9]x[/link] [/nothing] [",
        "\u202eevil\u2066 \ud800",
        "os:system",
        "subprocess:getoutput",
        touch,
        f"$({touch}) `{touch}`; {touch} #",
        "/etc/passwd",
        str(place.outside / "secret.txt"),
        RELATIVE_OUTSIDE,
        "../..",
        "",
        "x" * 100_000,
        "{0.__class__.__mro__} %s %n ${jndi:x}",
    ]


class Payload:
    """A pickle that creates the canary when it is loaded."""

    def __init__(self, place: Place) -> None:
        self.canary = str(place.canary)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.canary}",)


def evil_source(place: Place) -> str:
    """Python that creates the canary when it is imported."""
    return f"import pathlib\npathlib.Path({str(place.canary)!r}).touch()\nfrom surefoot import Recipe\n"


# ------------------------------------------------------------------------------------------- bytes


def flip(path: Path, place: Place, draw: Draw) -> str | None:
    data = bytearray(path.read_bytes())
    if not data:
        return None
    at, bit = draw.randrange(len(data)), draw.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {at}"


def cut(path: Path, place: Place, draw: Draw) -> str | None:
    size = path.stat().st_size
    if not size:
        return None
    left = draw.choice([0, size // 2, draw.randrange(size), size - 1])
    os.truncate(path, left)
    return f"{left} of {size} bytes left"


def hole(path: Path, place: Place, draw: Draw) -> str | None:
    data = path.read_bytes()
    if not data:
        return None
    at, size = draw.randrange(len(data)), draw.choice([1, 64, 512, 4096])
    size = min(size, len(data) - at)
    if not any(data[at : at + size]):
        return None
    path.write_bytes(data[:at] + bytes(size) + data[at + size :])
    return f"{size} bytes from {at}"


def grow(path: Path, place: Place, draw: Draw) -> str | None:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.choice([1, 100, 5000])))
    return ""


def noise(path: Path, place: Place, draw: Draw) -> str | None:
    path.write_bytes(draw.randbytes(max(1, path.stat().st_size)))
    return ""


def gone(path: Path, place: Place, draw: Draw) -> str | None:
    path.unlink()
    return ""


# ------------------------------------------------------------------------------------------- other things


def directory(path: Path, place: Place, draw: Draw) -> str | None:
    path.unlink()
    path.mkdir()
    return ""


def symlink(path: Path, place: Place, draw: Draw) -> str | None:
    path.unlink()
    path.symlink_to(place.outside / "secret.txt")
    return ""


def fifo(path: Path, place: Place, draw: Draw) -> str | None:
    path.unlink()
    os.mkfifo(path)
    return ""


def device(path: Path, place: Place, draw: Draw) -> str | None:
    target = draw.choice(["/dev/zero", "/dev/null", "/dev/full", "/dev/random"])
    path.unlink()
    path.symlink_to(target)
    return target


def sparse(path: Path, place: Place, draw: Draw) -> str | None:
    os.truncate(path, SPARSE_BYTES)
    return f"{SPARSE_BYTES} bytes"


def loop(path: Path, place: Place, draw: Draw) -> str | None:
    path.unlink()
    path.symlink_to(path.name)
    return ""


def pickled(path: Path, place: Place, draw: Draw) -> str | None:
    path.write_bytes(pickle.dumps(Payload(place)))
    return ""


def draft(path: Path, place: Place, draw: Draw) -> str | None:
    """Where a new version of the file is drafted stands a link to a file outside."""
    link = path.with_name(f".{path.name}.part")
    link.symlink_to(place.outside / "secret.txt")
    return link.name


def module(path: Path, place: Place, draw: Draw) -> str | None:
    """A file that Python would import from this folder, if the folder were on its path."""
    name = draw.choice(["sitecustomize.py", "torch.py", "helpers.py", "typing.py", "safetensors.py", "small.py"])
    (path.parent / name).write_text(evil_source(place))
    return name


BYTES: dict[str, Change] = {f.__name__: f for f in (flip, cut, hole, grow, noise, gone)}
THINGS: dict[str, Change] = {
    f.__name__: f for f in (directory, symlink, fifo, device, sparse, loop, pickled, draft, module)
}


# ------------------------------------------------------------------------------------------- JSON


def places_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a JSON value, itself included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(found for key, item in inner for found in places_in(item, (*at, key)))]


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """The value with another one at a place."""
    if not at:
        return new
    inside = value
    for key in at[:-1]:
        inside = inside[key]
    inside[at[-1]] = new
    return value


def got(value: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        value = value[key]
    return value


def others(value: Any) -> list[Any]:
    """Values of other types."""
    every = [None, True, 7, -1, 0.5, "text", [], [1], {}, {"a": 1}]
    return [each for each in every if type(each) is not type(value)]


RAW = "@@raw@@"
"""Stands for text that json.dumps would not write."""


def retyped(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    at = draw.choice(places_in(value))
    new = draw.choice(others(got(value, at)))
    return put(value, at, new), "", f"{_dotted(at)} = {new!r}"


def altered(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    """Another value of the same type, which nobody can tell from a right one."""
    at = draw.choice([each for each in places_in(value) if each and not isinstance(got(value, each), dict)])
    old = got(value, at)
    if isinstance(old, list):
        new: Any = [*old, old[0] if old else 1]
    elif isinstance(old, bool) or old is None:
        new = not old
    else:
        new = old + "x" if isinstance(old, str) else old + 1
    return put(value, at, new), "", f"{_dotted(at)} = {str(new)[:50]}"


def nested(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    at = draw.choice(places_in(value))
    deep = draw.choice(["[" * DEEP + "]" * DEEP, "[" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP])
    return put(value, at, RAW), deep, _dotted(at)


def constant(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    at = draw.choice([each for each in places_in(value) if isinstance(got(value, each), int | float)] or [()])
    word = draw.choice(["NaN", "Infinity", "-Infinity", "1e999", '"nan"', '"inf"', "-0.0", "1e308", "-1e308"])
    return put(value, at, RAW), word, f"{_dotted(at)} = {word}"


def huge(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    at = draw.choice([each for each in places_in(value) if isinstance(got(value, each), int | float)] or [()])
    word = draw.choice(["9" * 5000, str(2**63), str(2**80), str(-(2**80)), "-1", "0"])
    return put(value, at, RAW), word, f"{_dotted(at)} = {word[:20]}"


def worded(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    at = draw.choice([each for each in places_in(value) if isinstance(got(value, each), str)] or [()])
    new = draw.choice(hostile_strings(place))
    return put(value, at, new), "", f"{_dotted(at)} = {new[:50]!r}"


def keyed(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    """A key becomes a hostile string."""
    at = draw.choice([each for each in places_in(value) if isinstance(got(value, each), dict) and got(value, each)])
    inside, new = got(value, at), draw.choice(hostile_strings(place))
    key = draw.choice(list(inside))
    inside[new] = inside.pop(key)
    return value, "", f"{_dotted((*at, key))} is called {new[:50]!r}"


def missing(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    at = draw.choice([each for each in places_in(value) if each])
    del got(value, at[:-1])[at[-1]]
    return value, "", _dotted(at)


def unknown(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    at = draw.choice([each for each in places_in(value) if isinstance(got(value, each), dict)])
    name = draw.choice(["__class__", "__init__", "self", "unheard_of"])
    got(value, at)[name] = draw.choice(hostile_strings(place))
    return value, "", _dotted((*at, name))


def doubled(value: Any, place: Place, draw: Draw) -> tuple[Any, str, str]:
    """The same key twice, with two values."""
    at = draw.choice([each for each in places_in(value) if isinstance(got(value, each), dict) and got(value, each)])
    key = draw.choice(list(got(value, at)))
    text = json.dumps(got(value, at))
    again = json.dumps({key: draw.choice(others(got(value, (*at, key))))})
    return put(value, at, RAW), text[:-1] + ", " + again[1:], _dotted((*at, key))


def _dotted(at: tuple[Any, ...]) -> str:
    return ".".join(map(str, at)) or "all of it"


JSON = {f.__name__: f for f in (retyped, altered, nested, constant, huge, worded, keyed, missing, unknown, doubled)}


def change_json(kind: str, path: Path, place: Place, draw: Draw) -> str | None:
    """Changes a JSON file, or one line of a file of JSON lines."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    if not lines or not lines[0].strip():
        return None
    number = draw.randrange(len(lines))
    try:
        value, raw, about = JSON[kind](json.loads(lines[number]), place, draw)
    except IndexError:  # nothing in it can be changed in this way
        return None
    lines[number] = json.dumps(value).replace(f'"{RAW}"', raw)
    path.write_text("\n".join(lines) + "\n", errors="surrogatepass")
    return about if path.suffix == ".json" else f"line {number + 1}: {about}"


def edit_json(path: Path, **fields: Any) -> None:
    """Sets fields of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def other_encoding(path: Path, place: Place, draw: Draw) -> str | None:
    data = path.read_bytes()
    how = draw.choice(["latin-1", "utf-16", "bom", "nul"])
    at = data.find(b'"') + 1
    made = {
        "latin-1": data[:at] + b"\xff\xfe\xe9" + data[at:],
        "utf-16": data.decode().encode("utf-16"),
        "bom": b"\xef\xbb\xbf" + data,
        "nul": data[:at] + b"\0" + data[at:],
    }[how]
    path.write_bytes(made)
    return how


# ------------------------------------------------------------------------------------------- rows and folders


def rows(path: Path, place: Place, draw: Draw) -> str | None:
    """One row of a log is missing, is there twice, or has changed places."""
    lines = path.read_text().splitlines(keepends=True)
    if len(lines) < 2:
        return None
    how, at = draw.choice(["removed", "twice", "swapped", "reversed", "first half removed"]), draw.randrange(len(lines))
    if how == "removed":
        del lines[at]
    elif how == "twice":
        lines.insert(at, lines[at])
    elif how == "swapped":
        other = (at + 1) % len(lines)
        lines[at], lines[other] = lines[other], lines[at]
    elif how == "reversed":
        lines.reverse()
    else:
        lines = lines[len(lines) // 2 :]
    path.write_text("".join(lines))
    return f"{how}, row {at + 1}"


def empty_folder(path: Path) -> None:
    """Removes a folder, whatever became of it."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
