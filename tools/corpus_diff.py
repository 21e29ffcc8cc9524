"""What a change did to the diagnoses of real logs.

python tools/corpus_diff.py --save before.json [CORPUS]     diagnose every case and keep what was said
python tools/corpus_diff.py before.json after.json          what differs, case by case; exit code 1 when anything does
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import labelled
from rlclinic.model import Diagnosis, Evidence

Saved = dict[str, dict[str, Any]]


def save(corpus: Path) -> Saved:
    """Per case what was said of it."""
    found: Saved = {}
    for case in labelled.cases(corpus):
        try:
            diagnosis = labelled.told(case)
        except Exception as broken:  # a crash is the most important difference there can be
            diagnosis = f"crashed: {type(broken).__name__}: {broken}"[:200]
        found[str(case)] = {"error": diagnosis} if isinstance(diagnosis, str) else kept(diagnosis)
    return found


def kept(diagnosis: Diagnosis) -> dict[str, Any]:
    """The part of a diagnosis that is worth comparing."""
    findings = {}
    for f in diagnosis.findings:
        test = f.evidence or Evidence(0.0, None, "")
        findings[f.check] = {
            "severity": None if f.severity is None else f.severity.label,
            "onset": None if f.onset is None else f.onset.step,
            "p": test.p_value,
            "q": test.q_value,
            "because_of": list(f.because_of),
            "says": f.says,
        }
    return {
        "verdict": diagnosis.verdict.severity,
        "primary": diagnosis.verdict.primary,
        "findings": findings,
        "notes": sorted(note.id for note in diagnosis.notes),
        "failed": sorted(e.check for e in diagnosis.checks if e.outcome == "failed"),
    }


def differences(before: Saved, after: Saved) -> list[tuple[str, str, str, str, str]]:
    """(case, what, before, after, words) for everything that changed, in the order of the cases."""
    rows: list[tuple[str, str, str, str, str]] = []
    for case in sorted(before.keys() | after.keys()):
        if case not in before or case not in after:
            rows.append((case, "case", "here" if case in before else "-", "here" if case in after else "-", ""))
            continue
        old, new = before[case], after[case]
        if "error" in old or "error" in new:
            if old.get("error") != new.get("error"):
                rows.append((case, "read", old.get("error", "read")[:60], new.get("error", "read")[:60], ""))
            continue
        moved = [what for what in ("verdict", "primary") if old[what] != new[what]]
        rows += [(case, what, str(old[what] or "-"), str(new[what] or "-"), "") for what in moved]
        for check in sorted(old["findings"].keys() | new["findings"].keys()):
            rows += [(case, check, *row) for row in _of_finding(old["findings"].get(check), new["findings"].get(check))]
        for kind in ("notes", "failed"):
            rows += [(case, f"{kind} {name}", "-", "+", "") for name in new[kind] if name not in old[kind]]
            rows += [(case, f"{kind} {name}", "+", "-", "") for name in old[kind] if name not in new[kind]]
    return rows


def _of_finding(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    if old is None or new is None:
        was, now = ("-" if f is None else f["severity"] for f in (old, new))
        return [(was, now, (new or old or {})["says"])]
    rows = []
    if old["severity"] != new["severity"]:
        rows.append((old["severity"], new["severity"], new["says"]))
    if _moved(old["onset"], new["onset"]):
        rows.append((f"onset {_shown(old['onset'])}", f"onset {_shown(new['onset'])}", ""))
    if any(_other_order(old[name], new[name]) for name in "pq"):
        rows.append((f"p {_shown(old['p'])} q {_shown(old['q'])}", f"p {_shown(new['p'])} q {_shown(new['q'])}", ""))
    if old["because_of"] != new["because_of"]:
        rows.append((", ".join(old["because_of"]) or "root", ", ".join(new["because_of"]) or "root", "explained by"))
    return rows


def _moved(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(old - new) > 1e-6 * max(abs(old), abs(new), 1.0)


def _other_order(old: float | None, new: float | None) -> bool:
    """Whether a probability came, went, or changed by more than ten times."""
    if old is None or new is None:
        return old is not new
    return not 0.1 <= (old + 1e-12) / (new + 1e-12) <= 10.0


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def table(rows: list[tuple[str, str, str, str, str]], width: int = 90) -> str:
    """The differences in columns, each case named once; findings that came and went are counted at the end."""
    if not rows:
        return "nothing changed"
    sizes = [max(len(row[i]) for row in rows) for i in range(4)]
    lines, last = [], ""
    for case, what, old, new, words in rows:
        name = case if case != last else ""
        last = case
        told = words if len(words) <= width else f"{words[: width - 3]}..."
        line = f"{name:{sizes[0]}}  {what:{sizes[1]}}  {old:>{sizes[2]}} -> {new:{sizes[3]}}  {told}"
        lines.append(line.rstrip())
    loud = ("warning", "critical")
    came = sorted(what for _, what, old, new, _ in rows if new in loud and old in ("-", "info"))
    went = sorted(what for _, what, old, new, _ in rows if old in loud and new in ("-", "info"))
    for title, names in (("now at warning or worse", came), ("no longer", went)):
        counts = ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names) if name != "verdict")
        if counts:
            lines.append(f"{title}: {counts}")
    lines.append(f"{len(rows)} differences in {len({row[0] for row in rows})} cases")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="BEFORE AFTER, or with --save the corpus")
    parser.add_argument("--save", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    if given.save:
        corpus = given.paths[0] if given.paths else labelled.CORPUS
        found = save(corpus)
        if not found:
            print(f"no labelled case under {corpus}", file=sys.stderr)
            return 2
        given.save.write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")
        print(f"{len(found)} cases saved in {given.save}")
        return 0
    if len(given.paths) != 2:
        parser.error("two files saved earlier, or --save FILE")
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in given.paths)
    rows = differences(before, after)
    print(table(rows))
    return 1 if rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
