"""Numbers as people read them: bytes, counts, FLOPs and seconds, always with their unit; names and knobs."""

import math
from collections.abc import Callable, Mapping, Sequence

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", "K", "M", "G", "T", "P", "E", "Z", "Y")


def bytes_text(amount: float) -> str:
    """`bytes_text(2_415_919_104)` is `2.25 GiB`."""
    return _scaled(amount, 1024, _BINARY)


def count_text(amount: float) -> str:
    """An exact count with thousands separators: `3,290,112`."""
    return f"{amount:,.0f}"


def counted(amount: int, word: str) -> str:
    """`1 step`, `2 steps`."""
    plural = "es" if word.endswith(("ch", "s")) else "s"
    return f"{amount:,} {word if amount == 1 else word + plural}"


def first_of(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`: the first names of many."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def knobs_text(knobs: Mapping[str, object]) -> str:
    """`layers=24 width=1024`, as on a command line."""
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def flops_text(amount: float) -> str:
    """`flops_text(12_886_000_000)` is `12.89 GFLOP`."""
    return _scaled(amount, 1000, tuple(f"{prefix}FLOP" for prefix in _DECIMAL))


def bits_per_byte(loss: float, bytes_per_token: float) -> float:
    """Converts a mean loss in nats per token to bits per byte of text, which does not depend on the tokenizer."""
    return loss / math.log(2) / bytes_per_token


def between(low: float, high: float, text: Callable[[float], str]) -> str:
    """`810 ms to 1.1 s`."""
    return f"{text(low)} to {text(high)}"


def seconds_text(amount: float) -> str:
    """Seconds in a readable unit: `840 us`, `12.3 ms`, `4.21 s`, `2 h 05 min`, `144.3 days`."""
    if amount < 1e-3:
        return f"{amount * 1e6:.0f} us"
    if amount < 1:
        return f"{amount * 1e3:.3g} ms"
    if amount < 120:
        return f"{amount:.3g} s"
    if amount < 7200:
        return f"{amount / 60:.1f} min"
    if amount < 48 * 3600:
        return f"{int(amount // 3600)} h {int(amount % 3600 // 60):02d} min"
    return f"{amount / 86400:.1f} days"


def amount_text(amount: float, unit: str) -> str:
    """An amount with its unit, in the format of that unit."""
    rules = {"bytes": bytes_text, "FLOP": flops_text, "seconds": seconds_text}
    if unit in ("days", "dollars"):
        return f"{amount:,.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"
    return rules[unit](amount) if unit in rules else f"{count_text(amount)} {unit}"


def _scaled(amount: float, base: int, names: tuple[str, ...]) -> str:
    power = 0
    while abs(amount) >= base and power < len(names) - 1:
        amount, power = amount / base, power + 1
    return f"{amount:.0f} {names[power]}" if power == 0 else f"{amount:.2f} {names[power]}"
