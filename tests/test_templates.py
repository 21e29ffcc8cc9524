"""Rules and panels for other programs: the same limits and names as the checks, and valid where they are to be read."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from rlclinic import names
from rlclinic.checks import BY_NAME, CHECKS
from rlclinic.cli import cli
from rlclinic.cli.templating import KINDS as OFFERED
from rlclinic.errors import BadRequest, UnknownName
from rlclinic.model import Severity
from rlclinic.report import exposition as served
from rlclinic.simulate import as_run, healthy, scenario
from rlclinic.templates import KINDS, Naming, naming, template
from rlclinic.templates.levels import PLAIN, left_out, levels, not_finite, shown

CANONICAL = {re.sub(r"\W", "_", metric) for metric in names.metrics()}
OURS = {series.name for series in served.SERIES}
FRAMEWORKS = names.frameworks()
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: of Debian's package prometheus, or of its release"
)


def rules(named: Naming | None = None) -> list[dict[str, Any]]:
    """Every rule of the file, the groups one after the other."""
    read = yaml.safe_load(template("prometheus", named))
    return [rule for group in read["groups"] for rule in group["rules"]]


# ------------------------------------------------------------------------------------------------ one source of limits


def test_every_level_or_share_is_either_in_or_left_out_with_a_reason() -> None:
    placed = {f"{check.name}.{level.limit.name}" for level in levels() for check in level.checks}
    out = {limit for limits, why in left_out() for limit in limits if why}
    assert not placed & out
    wanted = {f"{check.name}.{limit.name}" for check in CHECKS for limit in check.limits.values()
              if limit.grades and max(limit.grades) >= Severity.WARNING and limit.moves in ("level", "share")}  # fmt: skip
    assert wanted - placed - out == set()
    assert {limit for limit in out if limit.partition(".")[2] not in BY_NAME[limit.partition(".")[0]].limits} == set()


def test_levels_that_share_a_rule_share_their_numbers() -> None:
    for level in levels():
        for check in level.checks:
            assert check.limits[level.limit.name].grades == level.limit.grades
        assert level.metric in names.metrics()
        read = {metric for check in level.checks for need in (*check.needs, *check.uses) for metric in need.split("|")}
        assert level.metric in read, f"{level.name}: its check does not read {level.metric}"
    assert len({level.name for level in levels()}) == len(levels())


def test_the_numbers_of_the_rules_are_those_of_the_checks() -> None:
    by_alert = {rule["alert"]: rule for rule in rules()}
    for level in levels():
        stem = "Series" + "".join(part.title() for part in level.name.split("_"))
        for severity, bound in level.told.items():
            rule = by_alert.pop(stem + severity.label.title())
            numbers = [float(n) for n in re.findall(r"[<>]=? (-?[0-9.e+]+)", rule["expr"])]
            assert numbers[0] == bound
            assert numbers[1:] == [level.grades.get(Severity.CRITICAL)] * (len(numbers) - 1)
            assert rule["labels"]["severity"] == severity.label
            assert level.limit.source in rule["annotations"]["description"]
            for check in level.checks:
                assert f"rlclinic explain {check.name}" in rule["annotations"]["description"]
    left = {name for name in by_alert if name.startswith("Series")}
    assert left == {"SeriesNanInfCritical"}


def test_what_runs_that_go_well_cross_has_no_rule_and_keeps_its_line() -> None:
    lesser = [one for one in levels() if len(one.told) < len(one.grades)]
    assert {one.name for one in lesser} >= {"kl_drift", "truncation"}
    alerts = {rule["alert"] for rule in rules()}
    assert not alerts & {"SeriesKlDriftWarning", "SeriesTruncationWarning"}
    script = template("wandb")
    assert "rlclinic kl_drift warning" not in script
    assert "rlclinic kl_drift critical" in script
    assert {f"rlclinic {one.name} " in script for one in levels() if one.middle or one.stands} == {False}
    assert "0.5 warning" in script


def test_a_limit_that_changes_changes_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    level = next(one for one in levels() if one.name == "kl_drift")
    monkeypatch.setitem(level.limit.grades, Severity.CRITICAL, 77.5)  # type: ignore[arg-type]
    assert "> 77.5" in template("prometheus")
    assert "77.5" in template("grafana")
    assert "77.5" in template("wandb")


@pytest.mark.parametrize("family", healthy())
def test_no_rule_on_a_level_speaks_of_a_healthy_run(family: str) -> None:
    run = as_run(scenario(family, steps=300, seed=5, phi=0.9))
    for level in levels():
        if level.metric not in run or level.value != PLAIN or level.stands:
            continue
        rows = np.asarray(run[level.metric].values, float)
        windows = np.lib.stride_tricks.sliding_window_view(rows[np.isfinite(rows)], 5)
        held = np.median(windows, axis=1) if level.middle else windows.mean(axis=1)
        for bound in level.told.values():
            bad = held > bound if level.sign == ">" else held < bound
            assert not (bad[1:] & bad[:-1]).any(), f"{level.name} {level.sign} {bound}"


def test_what_is_not_finite_is_looked_for_in_metrics_that_exist() -> None:
    check, metrics, mind = not_finite()
    assert check.name in BY_NAME
    assert mind
    assert set(metrics) <= set(names.metrics())


# --------------------------------------------------------------------------------------------------- names of series


def _series(text: str) -> set[str]:
    words = set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?=[\[{])", text))
    return words - {"instance"}


def test_every_series_named_is_ours_or_a_metric() -> None:
    for rule in rules():
        assert _series(rule["expr"]) <= OURS | CANONICAL
    board = json.loads(template("grafana"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            assert _series(target["expr"]) <= OURS
            for metric in re.findall(r'metric="([^"]+)"', target["expr"]):
                assert metric in names.metrics()
    for metrics in shown().values():
        assert set(metrics) <= set(names.metrics())


def test_series_may_be_called_as_the_user_calls_them() -> None:
    named = naming(prefix="grpo_", own=["kl.ref=my:kl", "entropy.mean=grpo_policy_entropy"])
    text = " ".join(rule["expr"] for rule in rules(named))
    assert "avg_over_time(my:kl[30m]) > 2" in text
    assert "avg_over_time(grpo_policy_entropy[30m]) < 0.005" in text
    assert "avg_over_time(grpo_group_zero_var_frac[30m]) > 0.75" in text
    assert "grpo_kl_ref[" not in text


@pytest.mark.parametrize("prefix", ["a b", "1x", 'x"', "x{", "\u00e9", "x" * 300, "x\n"])
def test_a_prefix_that_would_break_an_expression_is_refused(prefix: str) -> None:
    with pytest.raises(BadRequest):
        naming(prefix=prefix)


@pytest.mark.parametrize("own", ["kl.ref", "kl.ref=", "kl.ref=a b", 'kl.ref=x"}', "=x", "kl.ref=1"])
def test_a_name_that_would_break_an_expression_is_refused(own: str) -> None:
    with pytest.raises((BadRequest, UnknownName)):
        naming(own=[own])


def test_unknown_names_are_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"kl\.ref"):
        naming(own=["kl.reff=x"])
    with pytest.raises(UnknownName, match="trl"):
        naming("tlr")
    with pytest.raises(UnknownName):
        template("prometeus")


# ----------------------------------------------------------------------------------------------------- every trainer


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_trainer_has_every_template(framework: str) -> None:
    named = naming(framework)
    table = names.load(framework)
    written = [*table.exact, *(row.pattern for _, row in table.families)]
    keys = {re.sub(r"[^a-zA-Z0-9_:]", "_", key) for key in written}
    for rule in rules(named):
        assert _series(rule["expr"]) <= OURS | keys
    for kind in KINDS:
        assert template(kind, named) == template(kind, naming(framework))
    ast.parse(template("wandb", named))
    json.loads(template("grafana", named))


def test_a_trainer_in_another_unit_is_brought_to_ours() -> None:
    scaled = [(framework, level) for framework in FRAMEWORKS for level in levels()
              if naming(framework).series(level.metric) and naming(framework).scale(level.metric) != 1.0]  # fmt: skip
    for framework, level in scaled:
        factor = f"{naming(framework).scale(level.metric):.10g} * avg_over_time("
        assert factor in " ".join(rule["expr"] for rule in rules(naming(framework)))


# ------------------------------------------------------------------------------------------------------- Prometheus


@promtool
@pytest.mark.parametrize("named", [Naming(), naming("trl"), naming("verl"), naming(prefix="a:", own=["kl.ref=x"])])
def test_promtool_takes_the_rules(named: Naming, tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(template("prometheus", named))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(rules(named))} rules" in done.stdout


def _case(series: dict[str, str], fires: dict[str, list[dict[str, str]]], at: str = "90m") -> dict[str, Any]:
    silent = {rule["alert"] for rule in rules()} - set(fires)
    return {
        "interval": "5m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertstate="firing", alertname=~"{"|".join(sorted(silent))}"}})',
                "eval_time": at,
                "exp_samples": [],
            },
            *(
                {
                    "expr": f'count(ALERTS{{alertstate="firing", alertname="{name}"}})',
                    "eval_time": at,
                    "exp_samples": [{"labels": "{}", "value": len(labels)}],
                }
                for name, labels in fires.items()
            ),
        ],
    }


_TRIAL = 'rlclinic_finding{check="reward_hacking", severity="critical", status="preview", title="It is gamed."}'
_FOUND = 'rlclinic_finding{check="kl_drift", severity="critical", status="stable", title="The policy has moved."}'
_HEALTHY = {
    "entropy_mean": "0.4+0x20",
    "kl_ref": "0.02+0.002x20",
    "group_zero_var_frac": "0.2+0x20",
    "length_truncated_frac": "0.01+0x20",
    "grad_norm": "0.3+0x20",
    "mismatch_is_ess": "0.9+0x20",
    "mismatch_is_mean": "1.01+0x20",
    "value_explained_var": "0.3+0x20",
    "reward_mean": "0.1+0.02x20",
    "reward_success_rate": "0.2+0.02x20",
    "clip_frac": "0+0x20",
}
"""Figures of a run that goes well; the entropy is that of a distilled model, the KL crosses none of the limits."""
_ONE: list[dict[str, str]] = [{}]
CASES = {
    "healthy": _case(
        {
            **_HEALTHY,
            _FOUND: "1+0x6 _x14",
            'rlclinic_run_state{state="stalled"}': "0+0x20",
            'rlclinic_verdict{severity="undecided"}': "1+0x4 0+0x16",
            "rlclinic_look_failures_total": "0+0x5 1+0x15",
        },
        {},
    ),
    "a healthy run at its limits, and one that begins on the bad side": _case(
        {
            "kl_ref": "0.7+0x20",
            "length_truncated_frac": "0.12+0x20",
            "value_explained_var": "-9-0x4 -0.5+0x15",
            "text_format_error_frac": "0.95-0.02x20",
            "reward_success_rate": "0.01+0.0005x20",
        },
        {},
    ),
    "one bad row": _case(
        {
            "group_zero_var_frac": "0.2+0x12 1 0.2+0x7",
            "grad_norm": "0.3+0x12 3000000 0.3+0x7",
            "mismatch_chi2": "0.1+0x12 900 0.1+0x7",
        },
        {},
    ),
    "a check in preview, and a server that went away": _case(
        {_TRIAL: "1+0x20", 'rlclinic_run_state{state="live"}': "1+0x12 _x8"},
        {"RlclinicPreview": _ONE, "RlclinicGone": _ONE},
    ),
    "a server that was ended after its run": _case({'rlclinic_run_state{state="live"}': "1+0x10 0 0 _x8"}, {}),
    "a critic that stays useless": _case(
        {"value_explained_var": "-0.5+0x60"}, {"SeriesCriticFailureWarning": _ONE}, "295m"
    ),
    "warnings and what is critical of other kinds": _case(
        {
            "group_zero_var_frac": "0.6+0x20",
            'kl_ref{run="a"}': "9+0x20",
            'kl_ref{run="b"}': "7+0x20",
            'kl_ref{run="c"}': "0.1+0x20",
            "entropy_mean": "0.001+0x20",
            "mismatch_is_ess": "0.2+0x20",
            "mismatch_is_mean": "0.05+0x20",
            "loss_total": "0.1" + " NaN" * 20,
            _FOUND: "1+0x20",
            'rlclinic_run_state{state="stalled"}': "0+0x10 1+0x10",
            "rlclinic_look_failures_total": "0+5x20",
        },
        {
            "SeriesZeroVarianceGroupsWarning": _ONE,
            "SeriesKlDriftCritical": [{}, {}],
            "SeriesEntropyCollapseCritical": _ONE,
            "SeriesTrainInferenceMismatchSamplesWarning": _ONE,
            "SeriesTrainInferenceMismatchWeightCritical": _ONE,
            "SeriesNanInfCritical": _ONE,
            "RlclinicCritical": _ONE,
            "RlclinicRunStalled": _ONE,
            "RlclinicCannotLook": _ONE,
        },
    ),
    "critical, and no warning beside it": _case(
        {"group_zero_var_frac": "0.9+0x20"}, {"SeriesZeroVarianceGroupsCritical": _ONE}
    ),
}


@promtool
def test_made_series_fire_what_they_should_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(template("prometheus"))
    made = {"rule_files": ["rules.yml"], "evaluation_interval": "5m", "tests": list(CASES.values())}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(made))
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_has_no_rule_is_said() -> None:
    text = template("prometheus", naming("trl"))
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    for limits, why in left_out():
        assert why in comments
        assert all(limit in comments for limit in limits)
    assert "TRL reports none of:" in comments
    assert "advantage_std" in comments


# --------------------------------------------------------------------------------------------------------- Grafana


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    board = json.loads(template("grafana", naming("trl")))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "instance"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert 0 <= place["x"] <= place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        if panel["type"] == "row":
            continue
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [{"value": None}])
        values = [step["value"] for step in steps]
        assert values[0] is None
        assert values[1:] == sorted(values[1:]), "steps rise"
    families = {panel["title"].lower() for panel in panels if panel["type"] == "row"}
    assert families == {"run", *shown()}


def test_lines_of_the_dashboard_are_the_limits() -> None:
    panels = {panel["title"]: panel for panel in json.loads(template("grafana"))["panels"]}
    steps = panels[names.metric("entropy.mean").title]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step["color"], step["value"]) for step in steps] == [
        ("red", None), ("orange", 0.005), ("green", 0.02), ("orange", 3.0), ("red", 4.0)]  # fmt: skip
    assert "step time" in panels
    assert panels["step time"]["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"]["mode"] == "off"


# ------------------------------------------------------------------------------------------------------------- W&B


def _values(script: str) -> dict[str, Any]:
    tree = ast.parse(script)
    return {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip


def test_the_script_speaks_of_keys_as_wandb_has_them() -> None:
    made = _values(template("wandb", naming("trl")))
    keys = {key for _, panels in made["SECTIONS"] for _, key in panels}
    assert {"train/entropy", "train/kl", "train/frac_reward_zero_std"} <= keys
    assert all(key.startswith(("train/", "eval/")) for key in keys)
    verl = _values(template("wandb", naming("verl")))
    assert "actor/entropy" in {key for _, panels in verl["SECTIONS"] for _, key in panels}
    for _, key, sign, limit, says in [*made["ALERTS"], *verl["ALERTS"]]:
        assert key
        assert sign in "<>"
        assert float(limit) == limit
        assert "rlclinic explain" in says


def test_the_script_asks_nothing_of_anybody_when_loaded(tmp_path: Path) -> None:
    file = tmp_path / "panels.py"
    file.write_text(template("wandb", naming("trl")))
    code = "import sys; sys.path.insert(0, '.'); import panels; print(len(panels.ALERTS), 'wandb' in sys.modules)"
    asked = {"capture_output": True, "text": True, "timeout": 30, "check": True}
    done: Any = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, **asked)
    assert done.stdout.split()[1] == "False"


@pytest.mark.libraries
def test_wandbs_own_packages_take_the_script(tmp_path: Path) -> None:
    pytest.importorskip("wandb_workspaces", reason="needs wandb-workspaces")
    from wandb.automations import ProjectScope, SlackIntegration

    made: dict[str, Any] = {"__name__": "panels"}
    exec(compile(template("wandb", naming("trl")), "panels", "exec"), made)
    view = made["workspace"]("team", "project")._to_model()
    assert "train/entropy" in view.model_dump_json()
    scope = ProjectScope(id="UHJvamVjdDox", name="project")
    slack = SlackIntegration(id="SW50ZWdyYXRpb246MQ==", team_name="team", channel_name="runs")
    alerts = [event >> action for _, _, event, action in made["alerts"](scope, slack)]
    assert len(alerts) == len(made["ALERTS"])


# ------------------------------------------------------------------------------------------------- the command line


def test_the_command_writes_what_was_asked_for_and_nothing_over_anything(tmp_path: Path) -> None:
    assert OFFERED == KINDS
    file = tmp_path / "rules.yml"
    run = CliRunner()
    assert run.invoke(cli, ["templates", "prometheus", "--framework", "verl", "-o", str(file)]).exit_code == 0
    assert yaml.safe_load(file.read_text())["groups"]
    again = run.invoke(cli, ["templates", "prometheus", "-o", str(file)])
    assert isinstance(again.exception, BadRequest)
    assert "verl" in file.read_text()
    assert run.invoke(cli, ["templates", "nagios"]).exit_code == 2
