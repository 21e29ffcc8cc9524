"""Evidence is weighed over all checks of a diagnosis, and no verdict is graver than its evidence."""

from __future__ import annotations

import math

import pytest

from rlclinic.diagnose import _answer, weigh
from rlclinic.model import Evidence, Examination, Finding, Severity

TESTING = ("entropy_collapse", "entropy_rise", "reward_decline", "plateau", "no_learning")


def looked(check: str, evidence: Evidence | None, severity: Severity | None = Severity.CRITICAL) -> Examination:
    return Examination(check, "examined", Finding(severity, "says", evidence=evidence, check=check))


def weighed(*examinations: Examination) -> dict[str, Finding]:
    return {e.check: e.finding for e in weigh(examinations) if e.finding is not None}


def trend(p: float, n: int = 400, n_eff: float = 60.0, agreeing: bool | None = None) -> Evidence:
    return Evidence(1.0, p, "trend test", n, n_eff, agreeing)


@pytest.mark.parametrize(
    ("evidence", "strength", "severity"),
    [
        (trend(1e-6), "strong", Severity.CRITICAL),
        (trend(0.006), "moderate", Severity.WARNING),
        (trend(1e-6, agreeing=False), "moderate", Severity.WARNING),
        (trend(1e-6, n_eff=12.0), "moderate", Severity.WARNING),
        (trend(1e-6, n=60), "weak", Severity.WARNING),
        (trend(1e-6, n_eff=5.0), None, Severity.INFO),
        (Evidence(5.0, 1e-6, "a step scan", n=40), "strong", Severity.CRITICAL),
    ],
)
def test_no_verdict_is_graver_than_its_evidence(evidence: Evidence, strength: str, severity: Severity) -> None:
    others = [looked(check, None, None) for check in TESTING[1:]]
    found = weighed(looked(TESTING[0], evidence), *others)[TESTING[0]]
    assert found.evidence is not None
    assert found.evidence.strength == strength
    assert found.severity == severity
    assert found.evidence.q_value == pytest.approx(5 * evidence.p_value)


def test_every_check_that_tests_counts_and_no_other() -> None:
    one = looked("entropy_collapse", trend(0.008))
    alone = weighed(one, looked("truncation", None, None), looked("nan_inf", None))["entropy_collapse"]
    among = weighed(one, *[looked(check, None, None) for check in TESTING[1:]])["entropy_collapse"]
    both = weighed(one, looked("entropy_rise", trend(0.002)))
    assert alone.evidence is not None
    assert among.evidence is not None
    assert alone.evidence.q_value == pytest.approx(0.008)
    assert among.evidence.q_value == pytest.approx(0.04)
    assert [f.evidence.q_value for f in both.values() if f.evidence] == pytest.approx([0.008, 0.004])


def test_what_chance_does_not_make_stays_as_it_is() -> None:
    proven = Evidence(math.inf, None, "counted in the log")
    same = Evidence(0.5, 0.05, "equivalence", equivalence=True)
    found = weighed(looked("nan_inf", proven), looked("plateau", same), looked("truncation", None))
    assert found["nan_inf"].evidence == proven
    assert found["plateau"].evidence == same
    assert {f.severity for f in found.values()} == {Severity.CRITICAL}
    unseen = Examination("kl_drift", "unexamined", missing=("kl.ref",))
    assert weigh([unseen]) == [unseen]


def test_a_silent_finding_stays_silent() -> None:
    assert weighed(looked("entropy_rise", trend(0.4), None))["entropy_rise"].severity is None


def test_a_headline_says_why_it_is_graver_than_its_finding() -> None:
    found = Finding(check="plateau", severity=Severity.WARNING, says="something moved")
    assert ", which led to sudden_collapse (critical): something moved." in _answer(
        found, "which led to sudden_collapse (critical)"
    )
