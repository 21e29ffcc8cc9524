"""What a verification says: new harm to a run that was well, what is still open, what was done, and what nobody mended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import pairs
from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest
from rlclinic.model import Component, Diagnosis, Finding, Onset, Run, Severity
from rlclinic.report import render_verification
from rlclinic.simulate import run_from_spec
from rlclinic.verify import Cure, split, verify
from rlclinic.verify.taken import trials
from rlclinic.verify.words import agreed, headline
from test_verify import plain, truncated, written


def looked(run: Run, *checks: str) -> Diagnosis:
    return diagnose(run, only=checks or ["reward_decline"])


def fallen(steps: int = 300, at: int = 150) -> Run:
    """A run whose reward and held-out score are lost from a step on: critical."""
    down = {"to": 0.1, "at": at, "over": 40}
    return run_from_spec(
        {
            "preset": "plain",
            "steps": steps,
            "reward.mean": {"level": 0.62, "noise": 0.02, "falls": down},
            "eval.score": {"level": 0.58, "noise": 0.012, "every": 10, "falls": down},
        },
        1,
    )


# ------------------------------------------------------------------------------------------ a run that was well


def test_harm_to_a_run_that_was_well_is_told_and_fails() -> None:
    shown = verify(looked(plain(300)), looked(fallen()))
    assert shown.verdict == "worse"
    assert "no finding at warning or above, the run after is critical" in shown.says
    assert "reward_decline" in shown.says
    whole = fallen()
    before, after = split(whole, 140)
    inside = verify(looked(before), looked(after), one_log=True)
    assert (inside.verdict, [f.check for f in inside.new]) == ("worse", ["reward_decline"])


def test_harm_to_a_run_that_was_well_sets_the_exit_code(tmp_path: Path) -> None:
    one, two = written(plain(150), tmp_path / "one"), written(fallen(150, 60), tmp_path / "two")
    done = CliRunner().invoke(cli, ["verify", one, two, "--fail-on", "warning"])
    assert done.exit_code == 1, done.output
    assert "did not occur: eval_missing" in " ".join(done.output.split()), "what is still not logged was not mended"
    assert "New since then: reward_decline" in " ".join(done.output.split())


def test_warnings_alone_after_a_run_that_was_well_are_named_and_no_health() -> None:
    well = looked(plain(60))
    mild = Finding(Severity.WARNING, "cut", check="truncation")
    verdict, says = headline((), replace(well, findings=(mild,)), (mild,))
    assert verdict == "nothing"
    assert says.endswith("the run after has warnings. New since then: truncation.")


# ------------------------------------------------------------------------------------------ what is still open


def cure(check: str, verdict: str, role: str = "consequence", **more: object) -> Cure:
    because = more.pop("because", ())
    finding = Finding(Severity.CRITICAL, "", check=check, because_of=because)  # type: ignore[arg-type]
    return Cure(finding, role, verdict, "", (verdict,), **more)  # type: ignore[arg-type]


def test_the_headline_names_what_an_exit_code_is_about() -> None:
    after = looked(plain(60))
    root = cure("lr_too_high", "cured", "root")
    verdict, says = headline((root, cure("entropy_collapse", "undecided", more=23)), after, ())
    assert verdict == "cured"
    assert says == (
        "What began it is cured, but not all is decided yet (cured: lr_too_high). "
        "Of what followed, open: entropy_collapse (23 more rows)."
    )
    _, says = headline((root, cure("kl_drift", "no_effect"), cure("truncation", "cured")), after, ())
    assert says.endswith("but not all that followed (cured: lr_too_high). Of what followed, no effect: kl_drift.")
    _, says = headline((cure("kl_drift", "undecided", "root"), cure("truncation", "worse")), after, ())
    assert says.endswith("Of what followed, worse: truncation.")


def test_what_followed_and_is_cured_asks_for_nothing_more() -> None:
    made = verify(looked(truncated()[0], "truncation"), looked(truncated()[1], "truncation"))
    assert made.cures[0].trials
    shown = render_verification(made, "markdown")
    followed = replace(made, cures=(replace(made.cures[0], role="consequence", verdict="cured"),))
    short = render_verification(followed, "markdown")
    assert "remedies" in shown
    assert "remedies" not in short
    assert len(short) < len(shown)
    still = replace(made, cures=(replace(made.cures[0], role="consequence", verdict="no_effect"),))
    assert "remedies" in render_verification(still, "markdown")


def test_one_metric_has_one_verdict() -> None:
    made = verify(looked(truncated()[0], "truncation"), looked(truncated()[1], "truncation")).cures[0]
    root = replace(cure("lr_too_high", "cured", "root"), metric="entropy.mean", way=made.way)
    late = replace(
        cure("entropy_collapse", "undecided", because=("lr_too_high",)),
        metric="entropy.mean",
        possible=("cured", "improving"),
        more=23,
    )
    _, told = agreed((root, late))
    assert (told.verdict, told.more) == ("cured", None)
    assert agreed((root, replace(late, check="fires")))[1].verdict == "undecided"
    assert agreed((root, replace(late, metric="kl.ref")))[1].verdict == "undecided"


def test_a_level_that_is_open_in_logarithms_says_so() -> None:
    """98 % of the way back and open is a contradiction unless the other scale is told."""
    made = pairs.pair("kl_drift", "cured", way="fresh", rows=400, phi=0.5, seed=1)
    noise = np.random.default_rng(1).normal(0.0, 0.2, len(made.after["kl.ref"]))
    level = replace(made.after["kl.ref"], values=0.06 * np.exp(noise))
    after = replace(made.after, columns={**made.after.columns, "kl.ref": level})
    (shown,) = verify(looked(made.before, "kl_drift"), looked(after, "kl_drift")).cures
    assert shown.verdict != "cured"
    assert "in orders of magnitude" in shown.says


# ------------------------------------------------------------------------------------------------ what was done


def tried(remedy: str, before: Run, after: Run, finding: Finding) -> str:
    from rlclinic.verify.alignment import align

    pair = align(before, after)
    named = replace(finding, prescriptions=(replace(PRESCRIBED, id=remedy),))
    (trial,) = trials(named, pair)
    return f"{trial.taken} {trial.says}".strip()


PRESCRIBED = next(remedy for f in looked(fallen()).findings for remedy in f.prescriptions if not remedy.changes)
AT = Finding(Severity.CRITICAL, "", check="lr_too_high", onset=Onset(105, 103, 105))


def test_a_learning_rate_that_was_set_back_is_read_off_the_log() -> None:
    run, steps = plain(200), np.arange(1.0, 201.0)

    def at(values: np.ndarray) -> Run:
        return replace(
            run, columns={**run.columns, "optim.lr": replace(run["reward.mean"], metric="optim.lr", values=values)}
        )

    jumped = at(np.where(steps < 102, 1e-4, 6e-3))
    other = plain(200, seed=1)
    low = replace(
        other,
        columns={**other.columns, "optim.lr": replace(run["reward.mean"], steps=steps, values=np.full(200, 1e-4))},
    )
    high = replace(
        other,
        columns={**other.columns, "optim.lr": replace(run["reward.mean"], steps=steps, values=np.full(200, 6e-3))},
    )
    assert tried("restore_learning_rate", jumped, low, AT) == "taken"
    assert tried("restore_learning_rate", jumped, high, AT) == "not_taken"
    assert tried("restore_learning_rate", run, low, AT).startswith("no_setting")


def test_weights_that_changed_and_parts_that_are_gone_are_no_unknown() -> None:
    def made(weights: str | None, *parts: str, seed: int = 0) -> Run:
        run = plain(100, seed)
        run = run if weights is None else pairs.with_knobs(run, reward_weights=weights)
        return replace(run, components={name: Component(name, run["reward.mean"]) for name in parts})

    one = made("1.0, 1.0", "accuracy", "bonus")
    assert tried("reward_weights", one, made("1.0, 0.25", "accuracy", "bonus", seed=1), AT) == "partly"
    assert tried("reward_weights", one, made("1.0, 1.0", "accuracy", "bonus", seed=1), AT) == "not_taken"
    assert tried("reward_weights", one, made(None, "accuracy", "format", seed=1), AT).startswith(
        "partly no longer a part"
    )
    assert tried("reward_weights", made(None, "accuracy"), made(None, "accuracy", seed=1), AT) == "no_setting"


def test_a_run_that_starts_anew_goes_on_from_no_checkpoint() -> None:
    assert tried("roll_back", plain(100), plain(100, seed=1), AT) == "partly AFTER starts anew instead"


def test_a_judge_replaced_by_a_checker_is_one_task_by_what_is_held_out() -> None:
    def rewarded(part: str, held: str, seed: int) -> Run:
        run = plain(200, seed)
        score = replace(
            run["reward.mean"], steps=np.arange(20.0, 201.0, 20.0), values=np.linspace(0.2, 0.4 + 0.01 * seed, 10)
        )
        return replace(run, components={part: Component(part, run["reward.mean"])}, evaluations={held: score})

    judged = looked(rewarded("judge", "eval_exact", 0), "plateau")
    shown = verify(judged, looked(rewarded("accuracy", "eval_exact", 1), "plateau"))
    assert any("rewards are not compared" in remark for remark in shown.remarks)
    for other in ("eval_other", "eval_reward"):
        with pytest.raises(BadRequest, match="one task"):
            verify(judged, looked(rewarded("accuracy", other, 1), "plateau"))


def test_what_only_stayed_away_is_not_called_mended() -> None:
    run = plain(200)
    share = replace(run["clip.frac"], values=np.where(np.arange(200) == 90, 1.7, run["clip.frac"].values))
    shown = verify(
        looked(replace(run, columns={**run.columns, "clip.frac": share}), "logging_bug"),
        looked(plain(200, seed=1), "logging_bug"),
    )
    (gone,) = shown.cures
    assert gone.absent
    assert "did not occur" in shown.says
    assert "did not occur" in render_verification(shown, "terminal", color=False)
