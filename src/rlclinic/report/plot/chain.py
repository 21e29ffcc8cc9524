"""Which finding leads to which: boxes from cause to consequence, side by side where there is room, else as a tree."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from rlclinic.report.blocks import Chain, plain
from rlclinic.report.plot import svg

NODES = 40
"""Findings drawn; a report with more shows the first (ours)."""
_ROOM = {1: (340, 0), 2: (340, 64), 3: (300, 52), 4: (232, 40)}
"""Width of a box and of the gap behind it, by the number of columns: four fill a wide page; with more it is a tree."""
_TREE, _NARROW = (1040, 22, 10), (300, 14, 7)
"""Of a tree on a wide and on a narrow page: its width at most, what each step to a consequence is set in, how many are."""
_LETTER = 7.9
"""Pixels of a bold letter of 12.5 pixels, at most on average."""
_LINE, _BESIDE, _APART = 15, 18, 14
_LINES = 2
_PASSING = 4
"""Pixels of an arrow that passes a column."""
_TONES = ("healthy", "info", "warning", "critical", "undecided")


class _Box(NamedTuple):
    number: int
    lines: list[str]
    tone: str
    x: float
    y: float
    width: float
    also: tuple[str, ...] | None = None
    """Of a line of a tree: what is told behind its name, instead of the severity below it."""

    @property
    def height(self) -> float:
        return _height(self.lines) if self.also is None else 9.0 + _LINE * len(self.lines)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def _height(lines: list[str]) -> float:
    return 31.0 + _LINE * len(lines)


class _Graph(NamedTuple):
    """The findings with their tones, arrows without those that a longer way implies, and how deep each finding lies."""

    names: dict[int, str]
    tones: dict[int, str]
    arrows: list[tuple[int, int]]
    depth: dict[int, int]


def drawn(block: Chain, id: str) -> tuple[Markup, None, str]:
    """The picture in its two forms (plot.css shows the one that fits), no data to zoom, and what is seen.

    Findings that stand alone are left out, as is the arrow where a finding leads to another by way of a third.
    """
    joined = {number for arrow in block.arrows for number in arrow}
    nodes = [node for node in block.nodes[:NODES] if node[0] in joined]
    names, tones = {n: plain(name) for n, name, _ in nodes}, {n: str(tone) for n, _, tone in nodes}
    arrows = [(a, b) for a, b in dict.fromkeys(block.arrows) if a in names and b in names and a != b]
    depth = _depths(list(names), arrows)
    arrows = [(a, b) for a, b in arrows if depth[a] < depth[b]]  # what would close a circle is left out
    graph = _Graph(names, tones, _nearest(arrows), depth)
    told = [f"{a} {names[a]} leads to {b} {names[b]}" for a, b in graph.arrows]
    summary = "; ".join(told) + "." if told else "Findings of which none leads to another."
    columns = max(depth.values(), default=0) + 1
    wide = _side_by_side(graph, id, summary, columns) if columns in _ROOM else _tree(graph, id, summary, "wide tree")
    return wide + _tree(graph, f"{id}-d", summary, "down"), None, summary


def _depths(numbers: list[int], arrows: list[tuple[int, int]]) -> dict[int, int]:
    """How many arrows the longest way to each finding has."""
    depth = dict.fromkeys(numbers, 0)
    for _ in numbers:
        moved = False
        for a, b in arrows:
            if depth[b] < depth[a] + 1 < len(numbers):
                depth[b], moved = depth[a] + 1, True
        if not moved:
            break
    return depth


def _nearest(arrows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The arrows between which no longer way goes."""
    after: dict[int, set[int]] = {}
    for a, b in arrows:
        after.setdefault(a, set()).add(b)

    def reached(start: int) -> set[int]:
        found: set[int] = set()
        waiting = [start]
        while waiting:
            for b in after.get(waiting.pop(), set()) - found:
                found.add(b)
                waiting.append(b)
        return found

    beyond = {n: reached(n) for n in after}
    return [(a, b) for a, b in arrows if not any(b in beyond.get(c, ()) for c in after[a] if c != b)]


def _wrapped(name: str, width: float) -> list[str]:
    """``name`` in at most two lines, broken behind blanks and underscores, then anywhere; a long one up to its comma."""
    most = max(int((width - _BESIDE - 6) / _LETTER), 6)
    if len(name) > most * _LINES:
        name = name.partition(", ")[0]
    pieces = name.replace("_", "_\0").replace(" ", " \0").split("\0")
    lines = [""]
    for piece in pieces:
        while len(lines[-1]) + len(piece.rstrip()) > most:
            if lines[-1]:
                lines.append("")
            elif len(piece) > most:
                lines[-1], piece = piece[:most], piece[most:]
                lines.append("")
            else:
                break
        lines[-1] += piece
    lines = [line.rstrip() for line in lines if line.strip()] or [""]
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 1], lines[_LINES - 1][: most - 1] + "\u2026"]


def _side_by_side(graph: _Graph, id: str, summary: str, columns: int) -> Markup:
    """Columns by depth, each finding near its causes; an arrow over several columns has a place between their boxes."""
    width, gap = _ROOM[columns]
    lines = {n: _wrapped(name, width) for n, name in graph.names.items()}
    ways = {
        (a, b): [(a,), *((a, b, level) for level in range(graph.depth[a] + 1, graph.depth[b])), (b,)]
        for a, b in graph.arrows
    }
    before: dict[tuple[int, ...], list[tuple[int, ...]]] = {(n,): [] for n in graph.names}
    stacks: list[list[tuple[int, ...]]] = [[] for _ in range(columns)]
    for n in graph.names:
        stacks[graph.depth[n]].append((n,))
    for way in ways.values():
        for first, second in pairwise(way):
            before.setdefault(second, []).append(first)
            if len(second) == 3:
                stacks[second[2]].append(second)
    tall = {one: _height(lines[one[0]]) if len(one) == 1 else _PASSING for stack in stacks for one in stack}
    heights = [sum(tall[one] + _APART for one in stack) - _APART for stack in stacks]
    middle: dict[tuple[int, ...], float] = {}
    for stack, height in zip(stacks, heights, strict=True):
        wish = {
            one: sum(middle[c] for c in before[one]) / len(before[one]) if before[one] else max(heights) / 2
            for one in stack
        }
        floor, left = 1.0, height
        for one in sorted(stack, key=lambda one: (wish[one], one)):
            top = max(floor, min(wish[one] - tall[one] / 2, 1 + max(heights) - left))
            middle[one] = top + tall[one] / 2
            floor, left = top + tall[one] + _APART, left - tall[one] - _APART
    boxes = [
        _Box(n, lines[n], graph.tones[n], 1.0 + graph.depth[n] * (width + gap), middle[n,] - tall[n,] / 2, float(width))
        for n in graph.names
    ]
    edges = []
    for (a, b), way in ways.items():
        path = f"M{1 + graph.depth[a] * (width + gap) + width:g} {middle[way[0]]:g}"
        for level, (first, second) in enumerate(pairwise(way), graph.depth[a] + 1):
            end = 1 + level * (width + gap) - (7 if second == (b,) else 0)
            start, bend = 1 + level * (width + gap) - gap, gap * 0.6
            path += f"C{start + bend:g} {middle[first]:g} {end - bend:g} {middle[second]:g} {end:g} {middle[second]:g}"
            path += "" if second == (b,) else f"h{width:g}"
        edges.append(path)
    heads = [f"M{graph.depth[b] * (width + gap):g} {middle[b,]:g}l-8-4.5v9z" for b in dict.fromkeys(b for _, b in ways)]
    size = columns * (width + gap) - gap + 2, max(heights) + 2
    return _framed(f"chain wide columns{columns}", id, summary, size, edges, heads, boxes)


def _tree(graph: _Graph, id: str, summary: str, kind: str) -> Markup:
    """Each finding in a line below the deepest of its causes; its other causes are told behind it."""
    width, indent, most = _NARROW if kind == "down" else _TREE
    deepest_last = sorted(graph.arrows, key=lambda arrow: (graph.depth[arrow[0]], -arrow[0]))
    parent = {b: a for a, b in deepest_last}
    level: dict[int, int] = {}
    waiting = [n for n in reversed(list(graph.names)) if n not in parent]
    boxes: dict[int, _Box] = {}
    y, right = 1.0, 0.0
    while waiting:
        n = waiting.pop()
        level[n] = level[parent[n]] + 1 if n in parent else 0
        inset = min(level[n], most) * indent
        others = [str(a) for a, b in sorted(graph.arrows) if b == n and a != parent[n]]
        also = [_word(graph.tones[n]), *([f"also from {', '.join(others)}"] if others else [])]
        lines = _wrapped(f"{n} {graph.names[n]}", width - inset - (0 if kind == "down" else 190))
        while also and (len(lines[-1]) + sum(2 + len(word) for word in also)) * _LETTER > width - inset - _BESIDE:
            also.pop()  # on a narrow page the colour of the bar is left, and the card that the line leads to
        wide = max(*map(len, lines), len(lines[-1]) + sum(2 + len(word) for word in also)) * 6.9 + 28
        boxes[n] = _Box(n, lines, graph.tones[n], 1.0 + inset, y, min(wide, width - inset), tuple(also))
        y, right = y + boxes[n].height + 4, max(right, 1.0 + inset + wide)
        waiting += sorted((b for b, a in parent.items() if a == n), reverse=True)
    edges, heads = [], []
    for b, a in parent.items():
        x = boxes[a].x + indent / 2
        if boxes[b].x - x > 5:
            edges.append(f"M{x:g} {boxes[a].y + boxes[a].height:g}V{boxes[b].middle:g}H{boxes[b].x - 5:g}")
            heads.append(f"M{boxes[b].x - 1:g} {boxes[b].middle:g}l-6-4v8z")
    size = right + 1, max(y - 3, 2)
    return _framed(f"chain {kind}", id, summary, size, edges, heads, list(boxes.values()))


def _framed(
    kind: str,
    id: str,
    summary: str,
    size: tuple[float, float],
    edges: list[str],
    heads: list[str],
    boxes: list[_Box],
) -> Markup:
    """The drawing at its natural size, smaller where there is less room; a group, for its boxes are links."""
    start = Markup(
        '<svg class="{}" viewBox="0 0 {:g} {:g}" width="{:g}" role="group" aria-labelledby="{}-name">'
        '<title id="{}-name">{}</title>'
    ).format(kind, *size, size[0], id, id, f"What leads to what: {summary}")
    lines = svg.drawn("edge", "".join(edges)) + svg.drawn("head", "".join(heads))
    return start + lines + svg.NOTHING.join(map(_box, boxes)) + Markup("</svg>")


def _word(tone: str) -> str:
    return tone if tone in _TONES else "note"


def _box(box: _Box) -> Markup:
    word, slim = _word(box.tone), box.also is not None
    x, top = box.x + _BESIDE - 2, box.y + (16 if slim else 20)
    inset = 5 if slim else 9
    lines = [
        Markup('<text class="name" x="{:g}" y="{:g}">{}</text>').format(x, top + _LINE * i, line)
        for i, line in enumerate(box.lines)
    ]
    frame = Markup(
        '<a href="#finding-{}" class="node {}"><rect class="box" x="{:g}" y="{:g}" width="{:g}" height="{:g}" rx="6"/>'
        '<path class="side" d="M{:g} {:g}V{:g}"/>'
    ).format(box.number, word, *box[3:5], box.width, box.height, box.x + 7, box.y + inset, box.y + box.height - inset)
    if slim:
        kinds = zip(("word", "also"), box.also or (), strict=False)
        more = (Markup(' <tspan class="{}" dx="4">{}</tspan>').format(kind, words) for kind, words in kinds)
        lines[-1] = lines[-1].replace(Markup("</text>"), svg.NOTHING.join(more) + Markup("</text>"))
        return frame + svg.NOTHING.join(lines) + Markup("</a>")
    label = Markup('<text class="word" x="{:g}" y="{:g}">{}. {}</text></a>')
    return frame + svg.NOTHING.join(lines) + label.format(x, top + _LINE * len(box.lines) + 2, box.number, word)
