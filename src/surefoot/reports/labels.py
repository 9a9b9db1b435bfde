"""Labels of points in a plot, placed so that no two overlap."""

from __future__ import annotations

_LETTER, _LINE = 0.018, 0.08
"""The size of a letter and a line, as shares of a plot's width and height on a desktop screen."""
_PLACES = (("bottom center", 0, -0.07), ("top center", 0, 0.07), ("middle right", 1, 0), ("middle left", -1, 0))


def labels_apart(spots: dict[str, tuple[float, float, float]]) -> dict[str, str]:
    """Where the label of each point stands, so that no two overlap; a point without room has none.

    A spot is its place across the plot from 0 to 1, its decade, and its weight: the heaviest get their label first.
    """
    decades = [decade for _, decade, _ in spots.values()]
    height = max(1.0, max(decades) - min(decades))
    taken: list[tuple[float, float, float, float]] = []
    found: dict[str, str] = {}
    for name, (across, decade, _) in sorted(spots.items(), key=lambda each: -each[1][2]):
        up, wide = (decade - min(decades)) / height, _LETTER * len(name)
        for position, dx, dy in _PLACES:
            left = across - wide / 2 + dx * (wide / 2 + _LETTER)
            box = (left, left + wide, up + dy - _LINE / 2, up + dy + _LINE / 2)
            inside = box[0] >= -0.02 and box[1] <= 1.02
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                found[name] = position
                break
    return found


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
