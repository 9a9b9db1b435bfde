"""Turns records into JSON and back. Reading checks every value against the type hints of the dataclass."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from surefoot.errors import RunError, SurefootError
from surefoot.plain_files import open_plain

Record = TypeVar("Record")
Reader = Callable[[Any], Any]
LARGEST = 2**128
"""No count of bytes, tokens or FLOPs is larger; every float can hold it."""
MOST_BYTES = 2**28
"""No record is larger: 256 MiB."""
_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SHOWN = 40


class Malformed(ValueError):
    """JSON that is not the expected record. `where` is the path of the field, `said` what is wrong with it."""

    def __init__(self, said: str, where: tuple[str | int, ...] = ()) -> None:
        self.said, self.where = said, where
        super().__init__(f"{'/'.join(map(str, where)) or 'it'} {said}")

    def inside(self, part: str | int) -> "Malformed":
        """The same error, with the path as seen from the enclosing record."""
        return Malformed(self.said, (part, *self.where))


def to_json(record: Any, *, indent: int | None = 2) -> str:
    """One record as JSON text. JSON has no NaN and no infinity: they are written as words."""
    return json.dumps(to_plain(record), indent=indent, allow_nan=False)


def from_json(kind: type[Record], text: str | bytes) -> Record:
    """Reads a record that `to_json` wrote, or raises `Malformed`. Fields with a default may be missing."""
    record: Record = from_plain(kind, parse(text))
    return record


def read_record(kind: type[Record], file: Path, *, error: type[SurefootError] = RunError) -> Record:
    """Reads the record in a plain file. If it is damaged, `error` names the file, the field and what is wrong."""
    return read_both(kind, file, error=error)[0]


def read_both(kind: type[Record], file: Path, *, error: type[SurefootError] = RunError) -> tuple[Record, Any]:
    """The record in a plain file and its JSON, from a single read, so that they cannot differ."""
    with _opened(file, error, follow_links=False) as opened:
        content = _limited(file, opened, error)
    try:
        plain = parse(content)
        return from_plain(kind, plain), plain
    except ValueError as problem:
        raise error(f"{file} is damaged: {problem}") from problem


def read_lines(kind: type[Record], file: Path, *, error: type[SurefootError] = RunError) -> Iterator[Record]:
    """The records in a file, one on each line. A last line without a line end was cut by a crash and is skipped."""
    with _opened(file, error, follow_links=False) as opened:
        for number, line in enumerate(iter(partial(opened.readline, MOST_BYTES), b""), start=1):
            if len(line) >= MOST_BYTES:
                raise error(f"{file}, line {number}, is damaged: it has more than {MOST_BYTES:,} bytes")
            if line.endswith(b"\n"):
                try:
                    yield from_json(kind, line)
                except ValueError as problem:
                    raise error(f"{file}, line {number}, is damaged: {problem}") from problem


def json_lines(file: Path, *, error: type[SurefootError] = RunError) -> Iterator[tuple[int, Any]]:
    """Number and value of each line of a file that the user named. Blank lines are skipped."""
    with open(file, "rb") as opened:
        for number, line in enumerate(opened, start=1):
            if line.strip():
                try:
                    yield number, parse(line)
                except ValueError as problem:
                    raise error(f"{file}, line {number}: {problem}; each line must be one JSON value") from problem


def read_plain_file(file: Path, *, error: type[SurefootError] = RunError) -> bytes:
    """The bytes of a file that the user named: a plain file, or a link to one."""
    with _opened(file, error, follow_links=True) as opened:
        return _limited(file, opened, error)


@contextmanager
def _opened(file: Path, error: type[SurefootError], *, follow_links: bool) -> Iterator[IO[bytes]]:
    try:
        with open(open_plain(file.resolve() if follow_links else file), "rb") as opened:
            yield opened
    except (OSError, RuntimeError) as problem:  # `resolve` raises RuntimeError for a link to itself
        raise error(f"{file} cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem


def _limited(file: Path, opened: IO[bytes], error: type[SurefootError]) -> bytes:
    content = opened.read(MOST_BYTES)
    if len(content) >= MOST_BYTES:
        raise error(f"{file} is damaged: it has more than {MOST_BYTES:,} bytes")
    return content


def parse(text: str | bytes) -> Any:
    """Parses strict JSON: no NaN, no key twice. JSON nested too deeply for Python is refused too."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise Malformed("is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}") from None
    except Malformed:
        raise
    except ValueError as error:  # Python refuses numbers of thousands of digits
        raise Malformed(f"is not JSON: {str(error).partition(';')[0]}") from None


def to_plain(value: Any) -> Any:
    """A value as JSON types: dicts, lists, strings, numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """Rebuilds a value of type `kind` from the result of `to_plain`, or raises `Malformed`."""
    try:
        return _reader(kind)(value)
    except RecursionError:
        raise Malformed("is nested too deeply") from None


# ------------------------------------------------------------------------------------- one reader for each type hint


@cache
def _reader(kind: Any) -> Reader:
    """A function that checks a plain value and converts it to type `kind`."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _record_reader(kind)
    if origin in (types.UnionType, typing.Union):
        return _union_reader(parts)
    if origin is Literal:
        return _choice_reader(parts)
    if origin is tuple:
        return _tuple_reader(_reader(parts[0]), parts[0])
    if origin is dict:
        return _dict_reader(_reader(parts[1]))
    return _PLAIN[kind]


def _record_reader(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong(value, "an object")
        made, name = {}, ""
        try:
            for name, item in value.items():
                made[name] = readers[name](item)
        except Malformed as error:
            raise error.inside(name) from None
        except KeyError:
            raise Malformed(f"has a field {_short(name)} that {kind.__name__} does not know") from None
        if not needed <= made.keys():
            raise Malformed(f"has no field {min(needed - made.keys())!r}")
        return kind(**made)

    return read


def _union_reader(parts: tuple[Any, ...]) -> Reader:
    """Takes a plain value of an allowed type as it is, else the first part that can read it."""
    plain = {part for part in parts if part in (str, bool, type(None))}
    readers = [_reader(part) for part in sorted(parts, key=lambda part: part is float) if part not in plain]
    expected = " or ".join(_NAMES.get(part, "an object") for part in parts)

    def read(value: Any) -> Any:
        if type(value) in plain:
            return value
        problem: Malformed | None = None
        for reader in readers:
            try:
                return reader(value)
            except Malformed as error:
                problem = error
        if problem is not None and problem.where:
            raise problem
        raise _wrong(value, expected)

    return read


def _choice_reader(choices: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not str or value not in choices:
            raise _wrong(value, f"one of {', '.join(map(str, choices))}")
        return value

    return read


def _tuple_reader(reader: Reader, of: Any) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise _wrong(value, "a list")
        if (
            of is int
            and set(map(type, value)) <= {int}
            and (not value or -LARGEST < min(value) <= max(value) < LARGEST)
        ):
            return tuple(value)  # fast path: a log row can hold thousands of samples
        made: list[Any] = []
        try:
            for item in value:
                made.append(reader(item))
        except Malformed as error:
            raise error.inside(len(made)) from None
        return tuple(made)

    return read


def _dict_reader(reader: Reader) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong(value, "an object")
        made, key = {}, ""
        try:
            for key, item in value.items():
                made[key] = reader(item)
        except Malformed as error:
            raise error.inside(key) from None
        return made

    return read


def _float(value: Any) -> Any:
    if type(value) is float:
        if not math.isfinite(value):
            raise Malformed("is a number too large for a float")
        return value
    if type(value) is int:
        return _in_range(value)
    if type(value) is str and value in _NUMBERS:
        return _NUMBERS[value]
    raise _wrong(value, "a number")


def _int(value: Any) -> int:
    if type(value) is int:
        return _in_range(value)
    if type(value) is float and value.is_integer():
        return _in_range(int(value))
    raise _wrong(value, "a whole number")


def _in_range(value: int) -> int:
    if not -LARGEST < value < LARGEST:
        raise Malformed(f"is a number of {value.bit_length()} bits; at most 128 are allowed")
    return value


def _exactly(kind: type, name: str) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _wrong(value, name)
        return value

    return read


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}
_PLAIN: dict[Any, Reader] = {
    Any: lambda value: value,
    int: _int,
    float: _float,
    **{kind: _exactly(kind, _NAMES[kind]) for kind in (str, bool, type(None))},
}


def _wrong(value: Any, expected: str) -> Malformed:
    return Malformed(f"is {_short(value)}, not {expected}")


def _short(value: Any) -> str:
    """A value for a message. Lists and objects are only named, because they can be huge."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    shown = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Malformed(f"has the field {_short(twice)} twice")
    return made


def _no_constant(word: str) -> Any:
    raise Malformed(f"is not JSON: it holds {word}")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
