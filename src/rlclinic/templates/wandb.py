"""A script that makes a W&B workspace of the metrics that matter and, if asked, alerts at the same limits."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlclinic import __version__, names
from rlclinic.model import Severity
from rlclinic.templates.levels import PLAIN, Level, Naming, levels, number, shown, wandb_key

ROWS = 20
"""Logged rows over which an alert takes the mean (ours: the noise of a mean of 20 is a fifth of one row's)."""

_HEAD = '''\
"""Panels and alerts for Weights & Biases, written by rlclinic {version}: rlclinic templates wandb

    pip install wandb wandb-workspaces
    python THIS_FILE ENTITY PROJECT              a saved view with one section for each family of failures
    python THIS_FILE ENTITY PROJECT --alerts     also automations that tell the team's first Slack integration

The limits stand in the titles of the panels. An alert holds the mean of {rows} rows of one metric against a limit; it knows
neither chance nor the run's own beginning, which rlclinic watch and the hooks do. Limits: rlclinic explain CHECK.
Checked against wandb 0.31.0 and wandb-workspaces 0.4.13.
"""

import sys

'''

_TAIL = """

def workspace(entity, project):
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    sections = [
        ws.Section(name=name, panels=[wr.LinePlot(title=title, x="Step", y=[key]) for title, key in panels], is_open=True)
        for name, panels in SECTIONS
    ]
    return ws.Workspace(entity=entity, project=project, name="rlclinic", sections=sections)


def alerts(scope, integration):
    from wandb.automations import OnRunMetric, RunEvent, SendNotification

    for name, key, sign, limit, says in ALERTS:
        mean = RunEvent.metric(key).avg(ROWS)
        event = OnRunMetric(scope=scope, filter=mean.gt(limit) if sign == ">" else mean.lt(limit))
        yield name, says, event, SendNotification.from_integration(integration)


def main():
    given = [argument for argument in sys.argv[1:] if argument != "--alerts"]
    if len(given) != 2:
        sys.exit("usage: python THIS_FILE ENTITY PROJECT [--alerts]")
    entity, project = given
    print(workspace(entity, project).save().url)
    if "--alerts" in sys.argv:
        import wandb

        api = wandb.Api()
        integration = next(iter(api.slack_integrations(entity=entity)), None)
        if integration is None:
            sys.exit("the team has no Slack integration: W&B, Team Settings, Integrations")
        for name, says, event, action in alerts(api.project(project, entity=entity), integration):
            api.create_automation(event >> action, name=name, description=says, fetch_existing=True)
            print(name)


if __name__ == "__main__":
    main()
"""


def script(naming: Naming) -> str:
    """A Python script, ending with a newline; without a trainer its keys are canonical names."""
    by_metric: dict[str, list[Level]] = {}
    for level in levels():
        by_metric.setdefault(level.metric, []).append(level)
    sections = []
    for family, metrics in shown().items():
        panels = [
            (_title(metric, by_metric.get(metric, ())), key) for metric in metrics if (key := wandb_key(metric, naming))
        ]
        sections += [(family, panels)] if panels else []
    lines = ["SECTIONS = ["]
    for family, panels in sections:
        lines += [f"    ({json.dumps(family)}, [", *(f"        {_tuple(panel)}," for panel in panels), "    ]),"]
    lines += ["]", "", f"ROWS = {ROWS}", "ALERTS = ["]
    for level in levels():
        key = wandb_key(level.metric, naming)
        if key is None or level.value != PLAIN or level.middle or level.stands:
            # An automation compares a mean of few rows: nothing made of it, no median, no time for which it holds.
            continue
        for severity, bound in sorted(level.told.items(), reverse=True):
            name = f"rlclinic {level.name} {severity.label}"
            checks = " or ".join(f"rlclinic explain {check.name}" for check in level.checks)
            says = f"{level.limit.says}: {severity.label} from {number(bound)} ({level.limit.source}). {checks}"
            limit = bound / naming.scale(level.metric)
            lines.append(f"    {_tuple((name, key, level.sign))[:-1]}, {number(limit)}, {json.dumps(says)}),")
    lines.append("]")
    return _HEAD.format(version=__version__, rows=ROWS) + "\n".join(lines) + "\n" + _TAIL


def _title(metric: str, held: Sequence[Level]) -> str:
    """The plain name of a metric with its limits."""
    about = names.metric(metric)
    limits = [f"{level.sign} {number(bound)} {severity.label}" for level in held if level.value == PLAIN
              for severity, bound in sorted(level.grades.items()) if severity >= Severity.WARNING]  # fmt: skip
    return about.title + (f" ({', '.join(limits)})" if limits else "")


def _tuple(texts: tuple[str, ...]) -> str:
    return f"({', '.join(map(json.dumps, texts))})"
