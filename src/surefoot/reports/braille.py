"""A curve in braille: two by four dots in every character."""

from collections.abc import Sequence

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800


def curve(xs: Sequence[float], ys: Sequence[float], *, width: int, height: int) -> list[str]:
    """Lines of text from top to bottom, with a dot in every column between the first point and the last."""
    dots = [[0] * width for _ in range(height)]
    columns, rows = 2 * width - 1, 4 * height - 1
    across = [_scaled(x, min(xs), max(xs), columns) for x in xs]
    down = [rows - _scaled(y, min(ys), max(ys), rows) for y in ys]
    for index in range(len(xs)):
        before = max(0, index - 1)
        for x, y in _between(across[before], down[before], across[index], down[index]):
            dots[y // 4][x // 2] |= _DOTS[x % 2][y % 4]
    return ["".join(chr(_BLANK + dot) if dot else " " for dot in line) for line in dots]


def _between(x: int, y: int, to_x: int, to_y: int) -> list[tuple[int, int]]:
    """The dots of a straight line."""
    length = max(abs(to_x - x), abs(to_y - y), 1)
    return [(round(x + (to_x - x) * i / length), round(y + (to_y - y) * i / length)) for i in range(length + 1)]


def _scaled(value: float, least: float, most: float, size: int) -> int:
    return round((value - least) / (most - least) * size) if most > least else 0
