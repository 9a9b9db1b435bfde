"""The graph of autograd as an SVG picture: parameters above, the loss below, one colour for each module."""

from __future__ import annotations

from html import escape
from typing import NamedTuple
from zlib import crc32

from surefoot.errors import RunError
from surefoot.records.looked import GraphNode, Looked
from surefoot.reports.visible import visible

MOST = 2000
"""A picture of more operations cannot be read."""
_LETTER, _ROW, _HEIGHT, _GAP, _EDGE = 6.7, 64, 34, 14, 30
_SWEEPS = 4
_STYLE = """
svg { font: 11px ui-monospace, Menlo, Consolas, monospace; background: #fff }
text { fill: #222 } .leaf { fill: #555 } path { fill: none; stroke: #999 }
@media (prefers-color-scheme: dark) {
svg { background: #16181c } rect { filter: brightness(.45) saturate(1.4) } text { fill: #eee } .leaf { fill: #bbb }
path { stroke: #666 } }
"""


class _Box(NamedTuple):
    """An operation in the picture: its lines of text, and the operations whose results it takes."""

    title: str
    under: str
    module: str
    takes: list[int]

    @property
    def width(self) -> float:
        return _LETTER * max(len(self.title), len(self.under)) + 16


def graph_svg(looked: Looked) -> str:
    """The picture. Raises if there is no graph, or if it is too large to be read."""
    if not looked.graph:
        raise RunError(f"the loss of {looked.of} has no graph, so there is nothing to draw")
    if len(looked.graph) > MOST:
        size = f"{len(looked.graph):,} operations; a picture of more than {MOST:,} cannot be read"
        raise RunError(f"the graph has {size}: take fewer layers")
    boxes = _boxes(looked.graph)
    rows = _rows(boxes)
    left, width = _placed(boxes, rows)
    top = {number: _EDGE + row * _ROW for row, numbers in enumerate(rows) for number in numbers}
    lines = [_edge(boxes, left, top, taken, number) for number, box in boxes.items() for taken in box.takes]
    lines += [_drawn(boxes[number], left[number], top[number]) for numbers in rows for number in numbers]
    height = 2 * _EDGE + (len(rows) - 1) * _ROW + _HEIGHT
    size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    title = f"<title>autograd: {escape(visible(looked.of))}</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{title}<style>{_STYLE}</style>'
    return "\n".join([head, *lines, "</svg>\n"])


def _boxes(graph: tuple[GraphNode, ...]) -> dict[int, _Box]:
    """Leaves are written into the operations that take them."""
    found = {}
    for number, node in enumerate(graph):
        if node.leaf:
            continue
        leaves = [visible(graph[each].leaf) for each in node.takes if graph[each].leaf]
        takes = [each for each in dict.fromkeys(node.takes) if not graph[each].leaf]
        found[number] = _Box(
            node.operation.removesuffix("0").removesuffix("Backward"), ", ".join(leaves), node.module, takes
        )
    return found


def _rows(boxes: dict[int, _Box]) -> list[list[int]]:
    """The operations by their longest way to the loss, the farthest first."""
    far = dict.fromkeys(boxes, 0)
    for number in _from_the_loss(boxes):
        for taken in boxes[number].takes:
            far[taken] = max(far[taken], far[number] + 1)
    rows: list[list[int]] = [[] for _ in range(max(far.values(), default=0) + 1)]
    for number, distance in far.items():
        rows[-1 - distance].append(number)
    return rows


def _from_the_loss(boxes: dict[int, _Box]) -> list[int]:
    """Each operation after all that take its result."""
    takers = dict.fromkeys(boxes, 0)
    for box in boxes.values():
        for taken in box.takes:
            takers[taken] += 1
    ready, found = [number for number, count in takers.items() if not count], []
    while ready:
        found.append(ready.pop())
        for taken in boxes[found[-1]].takes:
            takers[taken] -= 1
            if not takers[taken]:
                ready.append(taken)
    return found


def _placed(boxes: dict[int, _Box], rows: list[list[int]]) -> tuple[dict[int, float], float]:
    """The left edge of each box, and the width of the picture. Each row is sorted by the middles of its neighbours."""
    near: dict[int, list[int]] = {number: list(box.takes) for number, box in boxes.items()}
    for number, box in boxes.items():
        for taken in box.takes:
            near[taken].append(number)
    middle = {number: float(place) for numbers in rows for place, number in enumerate(numbers)}
    for sweep in range(_SWEEPS):
        for numbers in rows if sweep % 2 else rows[::-1]:
            wanted = {each: sum(middle[other] for other in near[each]) / max(1, len(near[each])) for each in numbers}
            numbers.sort(key=lambda each: wanted[each])
            total = sum(boxes[each].width for each in numbers) + _GAP * (len(numbers) - 1)
            x = -total / 2
            for each in numbers:
                middle[each] = x + boxes[each].width / 2
                x += boxes[each].width + _GAP
    left = {number: middle[number] - box.width / 2 for number, box in boxes.items()}
    first = min(left.values())
    return (
        {number: x - first + _EDGE for number, x in left.items()},
        max(left[number] + box.width for number, box in boxes.items()) - first + 2 * _EDGE,
    )


def _edge(boxes: dict[int, _Box], left: dict[int, float], top: dict[int, int], start: int, end: int) -> str:
    x, y = left[start] + boxes[start].width / 2, top[start] + _HEIGHT
    to_x, to_y = left[end] + boxes[end].width / 2, top[end]
    bend, by_x, by_to_x = (to_y - y) / 2, x, to_x
    passed = [number for number in boxes if top[start] < top[number] < top[end] and left[number] < max(x, to_x)]
    if passed:  # around the rows between: a curve reaches three quarters of the way to its control points
        side = min(left[number] for number in passed) - _GAP
        by_x, by_to_x = x + (side - x) * 4 / 3, to_x + (side - to_x) * 4 / 3
    curve = f"C{by_x:.0f} {y + bend:.0f} {by_to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y}"
    return f'<path d="M{x:.0f} {y}{curve}"/>'


def _drawn(box: _Box, x: float, y: int) -> str:
    hue = crc32(box.module.rpartition(".")[0].encode() or box.module.encode()) % 360
    colour = f"hsl({hue} 60% 88%)" if box.module else "#eee"
    lines = [(box.title, ""), (box.under, ' class="leaf"')] if box.under else [(box.title, "")]
    text = "".join(
        f'<text x="{x + 8:.0f}" y="{y + (14 if len(lines) > 1 else 21) + 14 * place}"{style}>{escape(words)}</text>'
        for place, (words, style) in enumerate(lines)
    )
    where = f"<title>{escape(visible(box.module))}</title>" if box.module else ""
    size = f'x="{x:.0f}" y="{y}" width="{box.width:.0f}" height="{_HEIGHT}"'
    return f'<g>{where}<rect {size} rx="5" fill="{colour}"/>{text}</g>'
