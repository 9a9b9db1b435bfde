"""Numbers as people read them: bytes, counts, FLOPs, seconds and money, always with their unit; names and knobs."""

import math
from collections.abc import Callable, Mapping, Sequence

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", "K", "M", "G", "T", "P", "E", "Z", "Y")
_SHORT = ("", "K", "M", "B", "T")


def bytes_text(amount: float) -> str:
    """`bytes_text(2_415_919_104)` is `2.25 GiB`."""
    return _scaled(amount, 1024, _BINARY)


def count_text(amount: float) -> str:
    """An exact count with thousands separators: `3,290,112`."""
    return f"{amount:,.0f}"


def short_count(amount: float) -> str:
    """A large count in three digits: `40B`, `5.12T`, as the field writes parameters and tokens."""
    rounded, power = float(f"{amount:.3g}"), 0
    while abs(rounded) >= 1000 and power < len(_SHORT) - 1:
        rounded, power = rounded / 1000, power + 1
    return f"{rounded:,.0f}{_SHORT[power]}" if rounded >= 1000 else f"{rounded:.3g}{_SHORT[power]}"


def money_figure(dollars: float) -> str:
    """Dollars without the word: `1,234`, `12.40`, `less than 0.01`."""
    if 0 < abs(dollars) < 0.01:
        return "less than 0.01"
    return f"{dollars:,.0f}" if abs(dollars) >= 100 or not dollars else f"{dollars:.2f}".removesuffix(".00")


def money_text(dollars: float) -> str:
    """`1,234 dollars`, `less than 0.01 dollars`."""
    return f"{money_figure(dollars)} dollars"


def money_estimate(dollars: float, shares: tuple[float, float]) -> str:
    """`5.04 dollars (4.17 to 5.71)`: an estimate, with its interval as shares of it."""
    if dollars < 0.01:
        return money_text(dollars)
    figure, low, high = (_estimated(share * dollars) for share in (1.0, *shares))
    return f"{figure} dollars" + ("" if low == high else f" ({low} to {high})")


def _estimated(dollars: float) -> str:
    return money_figure(float(f"{_to_three_digits(dollars):.0f}") if dollars >= 10 else dollars)


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
    if amount < 0.9995e-3:
        return f"{amount * 1e6:.0f} us"
    if amount < 0.9995:
        return f"{amount * 1e3:.3g} ms"
    if amount < 120:
        return f"{amount:.3g} s"
    if amount < 7200:
        return f"{amount / 60:.1f} min"
    if amount < 48 * 3600:
        return f"{int(amount // 3600)} h {int(amount % 3600 // 60):02d} min"
    return f"{amount / 86400:.1f} days"


_UNITS = ((48 * 3600.0, 86400.0, "days"), (7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.9995, 1.0, "s"))


def seconds_estimate(amount: float, ends: tuple[float, float] | None) -> str:
    """`1.14 s (0.94 to 1.29)`: an estimate and its interval, all in one unit."""
    scale, unit = next(((scale, unit) for least, scale, unit in _UNITS if amount >= least), (1e-3, "ms"))
    places = len(f"{_to_three_digits(amount / scale):.6g}".partition(".")[2])
    rounded = (_to_three_digits(round(each / scale, places)) for each in (amount, *(ends or ())))
    figure, *interval = (f"{each:,.6g}" for each in rounded)
    return f"{figure} {unit}" + (f" ({' to '.join(interval)})" if interval else "")


def _to_three_digits(amount: float) -> float:
    return float(f"{amount:.3g}")


def amount_text(amount: float, unit: str) -> str:
    """An amount with its unit, in the format of that unit."""
    rules = {
        "bytes": bytes_text,
        "FLOP": flops_text,
        "seconds": seconds_text,
        "dollars": money_text,
        "days": _days_text,
    }
    return rules[unit](amount) if unit in rules else f"{count_text(amount)} {unit}"


def _days_text(days: float) -> str:
    if 0 < days < 0.01:
        return seconds_text(days * 86400)
    return f"{days:,.0f} days" if days >= 100 else f"{days:.3g} days"


def _scaled(amount: float, base: int, names: tuple[str, ...]) -> str:
    power = 0
    while abs(amount) >= base and power < len(names) - 1:
        amount, power = amount / base, power + 1
    return f"{amount:.0f} {names[power]}" if power == 0 else f"{amount:.2f} {names[power]}"
