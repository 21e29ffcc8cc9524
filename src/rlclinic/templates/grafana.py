"""A Grafana dashboard of what ``rlclinic serve`` tells and, where asked, of series that a user exports himself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rlclinic import __version__, names
from rlclinic.model import Severity
from rlclinic.report import exposition as served
from rlclinic.templates.levels import PLAIN, Level, Naming, levels, number, shown

SCHEMA = 38
"""Version of the classic dashboard form (Grafana 10.0); later releases take it and bring it up to date themselves."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLOURS = {Severity.WARNING: "orange", Severity.CRITICAL: "red"}
_GREEN = "green"
_UNITS = {"fraction": "percentunit", "s": "s", "GiB": "gbytes", "1/s": "cps"}
_WIDE, _ACROSS, _HIGH = 24, 8, 8
_STATES = {0: ("nothing", "green"), 1: ("info", "blue"), 2: ("warning", "orange"), 3: ("critical", "red")}


def dashboard(naming: Naming) -> str:
    """The dashboard as JSON to import, ending with a newline. The series that the user exports stand beside those of
    ``rlclinic serve`` where a trainer, a prefix or names of his own are given."""
    page = _Page()
    page.row("Run")
    page.add(_stat("Verdict", f"{served.VERDICT.name}{_of()} == 1", "{{severity}}"), 6, 4)
    page.add(_stat("State", f"{served.STATE.name}{_of()} == 1", "{{state}}"), 6, 4)
    page.add(_stat("Last step", f"{served.STEP.name}{_of()}"), 6, 4)
    age = f"time() - {served.LAST_ROW.name}{_of()}"
    page.add(_stat("Since the last row", age, unit="s"), 6, 4)
    page.add(_timeline("Findings", f"{served.SEVERITY.name}{_of()} > 0", "{{check}}"), _WIDE, _HIGH)
    raw = naming.framework is not None or bool(naming.prefix or naming.own)
    held: dict[str, list[Level]] = {}
    for level in levels():
        held.setdefault(level.metric, []).append(level)
    for family, metrics in shown().items():
        page.row(family.capitalize())
        for metric in metrics:
            chosen = _of(f'metric="{metric}"')
            queries = [(served.METRIC.name + chosen, "rlclinic")]
            series = naming.series(metric) if raw else None
            if series is not None:
                scale = naming.scale(metric)
                queries.append((series if scale == 1.0 else f"{number(scale)} * {series}", series))
            page.add(_curve(metric, queries, held.get(metric, ())), _ACROSS, _HIGH)
    text = json.dumps(_whole(page.panels), indent=2, ensure_ascii=True)
    return text + "\n"


def _of(more: str = "") -> str:
    """The labels by which a series is chosen: that of the program at the address that the reader picked, and ``more``."""
    return "{" + ", ".join(['instance=~"$instance"', *([more] if more else [])]) + "}"


def _whole(panels: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": "rlclinic",
        "uid": "rlclinic",
        "description": f"Written by rlclinic {__version__}: rlclinic templates grafana. Lines are the limits of its checks.",
        "tags": ["rlclinic"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-12h", "to": "now"},
        "templating": {"list": [_datasource(), _instance()]},
        "annotations": {"list": []},
        "panels": panels,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _instance() -> dict[str, Any]:
    query = f"label_values({served.BUILD.name}, instance)"
    return {
        "name": "instance",
        "label": "Run at",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "instance"},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


class _Page:
    """Panels from left to right and top to bottom, with ids of their own."""

    def __init__(self) -> None:
        self.panels: list[dict[str, Any]] = []
        self._x = self._y = self._high = 0

    def row(self, title: str) -> None:
        self._y, self._x, self._high = self._y + self._high, 0, 0
        self._place({"type": "row", "title": title, "collapsed": False, "panels": []}, _WIDE, 1)
        self._y, self._x, self._high = self._y + 1, 0, 0

    def add(self, panel: dict[str, Any], wide: int, high: int) -> None:
        if self._x + wide > _WIDE:
            self._y, self._x, self._high = self._y + self._high, 0, 0
        self._place(panel, wide, high)
        self._x, self._high = self._x + wide, max(self._high, high)

    def _place(self, panel: dict[str, Any], wide: int, high: int) -> None:
        grid = {"x": self._x, "y": self._y, "w": wide, "h": high}
        self.panels.append({"id": len(self.panels) + 1, "gridPos": grid, **panel})


def _targets(queries: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"refId": chr(65 + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend, "range": True}
        for at, (expression, legend) in enumerate(queries)
    ]


def _stat(title: str, expression: str, legend: str = "", unit: str = "none") -> dict[str, Any]:
    named = bool(legend)
    return {
        "type": "stat",
        "title": title,
        "datasource": _SOURCE,
        "targets": _targets([(expression, legend or "__auto")]),
        "fieldConfig": {"defaults": {"unit": unit, "color": {"mode": "fixed", "fixedColor": "text"}}, "overrides": []},
        "options": {
            "reduceOptions": {"calcs": ["last"], "fields": "", "values": False},
            "textMode": "name" if named else "value",
            "colorMode": "value",
            "graphMode": "none",
        },
    }


def _timeline(title: str, expression: str, legend: str) -> dict[str, Any]:
    states = {str(value): {"text": text, "color": colour, "index": value} for value, (text, colour) in _STATES.items()}
    return {
        "type": "state-timeline",
        "title": title,
        "description": "From warning on only once seen at several looks in a row; what each is: rlclinic explain CHECK.",
        "datasource": _SOURCE,
        "targets": _targets([(expression, legend)]),
        "fieldConfig": {
            "defaults": {
                "mappings": [{"type": "value", "options": states}],
                "custom": {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False},
            },
            "overrides": [],
        },
        "options": {"mergeValues": True, "showValue": "auto", "rowHeight": 0.9, "legend": {"showLegend": False}},
    }


def _curve(metric: str, queries: Iterable[tuple[str, str]], held: Iterable[Level]) -> dict[str, Any]:
    about = names.metric(metric)
    held = [level for level in held if level.value == PLAIN]
    said = [
        f"{level.limit.says}: rlclinic explain {' or '.join(check.name for check in level.checks)}" for level in held
    ]
    description = ". ".join([f"{about.says[0].upper()}{about.says[1:]} ({metric})", *said])
    return {
        "type": "timeseries",
        "title": about.title,
        "description": description,
        "datasource": _SOURCE,
        "targets": _targets(queries),
        "fieldConfig": {
            "defaults": {
                "unit": _UNITS.get(about.unit, "none"),
                "color": {"mode": "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": _steps(held)},
                "custom": {
                    "drawStyle": "line",
                    "lineWidth": 1,
                    "fillOpacity": 0,
                    "showPoints": "never",
                    "spanNulls": False,
                    "thresholdsStyle": {"mode": "dashed" if held else "off"},
                },
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "none"},
        },
    }


def _steps(held: Iterable[Level]) -> list[Mapping[str, Any]]:
    """Where the colour changes, from below; below the first is the worst of what is bad downwards, else green."""
    above: dict[float, str] = {}
    below: dict[float, str] = {}
    for level in held:
        for severity, bound in level.grades.items():
            (above if level.sign == ">" else below)[bound] = _COLOURS[severity]
    falling = sorted(below.items())
    colours = [colour for _, colour in falling] + [_GREEN]
    steps: list[Mapping[str, Any]] = [{"color": colours[0], "value": None}]
    steps += [{"color": colours[at + 1], "value": bound} for at, (bound, _) in enumerate(falling)]
    return steps + [{"color": colour, "value": bound} for bound, colour in sorted(above.items())]
