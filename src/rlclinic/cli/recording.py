"""The command that keeps what was found, what was changed and what came of it with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlclinic.cli.options import answer_options, columns_of, names_option, run_options, speaking_as
from rlclinic.cli.output import busy
from rlclinic.errors import BadRequest, RlclinicError
from rlclinic.history import FILE, OUTCOMES


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@run_options
@names_option
@answer_options
@click.option("--after", metavar="RUN", help="The next run: what was changed, and what came of it, is read off it.")
@click.option(
    "--took",
    multiple=True,
    metavar="REMEDY",
    help="What was carried out: a remedy's id, or a finding (its change 1; FINDING:2 its change 2); repeatable.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting that was changed; repeatable.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="What came of it.")
@click.option("--note", default="", metavar="TEXT", help="A line of your own (at most 400 characters).")
@click.option("--to", metavar="wandb|mlflow", help="Also tell the run's tracker; or the address of the run there.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Write to this file, instead of {FILE} beside the log.",
)
@click.option("--dry-run", is_flag=True, help="Print the entry and where it would go; write nothing.")
def record(
    sources: tuple[str, ...],
    after: str | None,
    took: tuple[str, ...],
    settings: tuple[str, ...],
    outcome: str | None,
    note: str,
    to: str | None,
    output: Path | None,
    dry_run: bool,
    answers: tuple[Path, ...],
    columns: tuple[str, ...],
    own_names: Path | None,
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
) -> None:
    """Keep beside a run what was found, changed and reached.

    The next diagnosis reads it. The entry is added to rlclinic-record.json beside the log; earlier ones stay. No text
    of prompts or answers is in it.

    \b
    rlclinic record RUN --took clip_higher             what was done about it
    rlclinic record RUN --outcome cured                what came of what was done last
    rlclinic record BEFORE --after AFTER               both, read off the next run
    """
    from rlclinic.diagnose import diagnose
    from rlclinic.readers import read
    from rlclinic.record import keep, last_open, place
    from rlclinic.record import record as recorded

    sources = sources or tuple(map(str, answers))
    if not sources:
        raise BadRequest("a SOURCE", "none", hint="rlclinic record RUN")
    given = dict(_setting(text) for text in settings)
    reading: dict[str, Any] = {
        "framework": framework,
        "names": own_names,
        "answer_columns": columns_of(columns),
    }
    with speaking_as("record"), busy(sources):
        run = read(sources, config=configs, rollouts=answers, run=chosen_run, **reading)
        later = None if after is None else read([after], **{**reading, "answer_columns": None})
    where = _destination(run, to)
    file = output if output is not None else None if _afar(sources) and where else place(run, sources)
    if file is not None:
        _apart(file, run)
    diagnosis = diagnose(run)
    took = tuple(_remedy(text, diagnosis) for text in took)
    because = ""
    outcomes: dict[str, str] = {}
    if later is not None and outcome is None:
        outcome, because, outcomes = _verified(diagnosis, later)
    told: dict[str, Any] = {"outcome": outcome or "", "because": because, "outcomes": outcomes, "note": note}
    entry = recorded(diagnosis, took=took, given=given, after=later, **told)
    if file is not None:
        entry = entry.continuing(last_open(file, entry.run))
    if outcome and not entry.took and not any(one.severity in ("warning", "critical") for one in entry.found):
        nothing = "no finding at warning or above, and nothing that was taken"
        raise BadRequest("an outcome of something", nothing, hint="--took REMEDY or --set KEY=VALUE")
    if dry_run:
        click.echo(_compact(entry.to_dict()))
        click.echo(f"would be kept in {file}" if file is not None else "would be kept in no file (-o FILE)", err=True)
        if where:
            from rlclinic.record.telling import planned

            for line in planned(entry, where):
                click.echo(f"would be written to {_shown(line)}", err=True)
        return
    kept = "kept in no file of this disk (-o FILE keeps it in one)"
    if file is not None:
        many = keep(entry.to_dict(), file)
        kept = f"kept in {file}" + (f" beside {many - 1} earlier {'entry' if many == 2 else 'entries'}" * (many > 1))
    for line in (*_summary(entry), *([] if entry.took or outcome else _takeable(diagnosis)), kept):
        click.echo(_shown(line))
    if where:
        _tell(entry, where, file)


def _remedy(text: str, diagnosis: Any) -> str:
    """The id of a remedy: as such, or as the finding whose change 1 in the report it is, or FINDING:N for its change N."""
    from rlclinic.names import remedies
    from rlclinic.report.findings import changes

    check, _, place = text.partition(":")
    finding = next((one for one in diagnosis.findings if one.check == check), None)
    if finding is None:
        if text in remedies():
            return text
        raise BadRequest(
            "a remedy, or a finding of this run after --took", repr(text[:80]), _ids(diagnosis) or remedies()
        )
    able = changes(finding)
    at = int(place) - 1 if place.isascii() and place.isdigit() and len(place) < 4 else -1 if place else 0
    if not 0 <= at < len(able):
        told = f"{text[:80]!r}, and {check} has {len(able)}"
        raise BadRequest("the number of a change after --took", told, [one.id for one in able])
    return str(able[at].id)


def _ids(diagnosis: Any) -> list[str]:
    """The remedies that this run is prescribed, each once, those of the gravest findings first."""
    every = [one.id for f in diagnosis.findings if (f.severity or 0) > 1 for one in f.prescriptions if one.applies]
    return list(dict.fromkeys(every))


def _takeable(diagnosis: Any) -> list[str]:
    """What --took can name of this run."""
    ids = _ids(diagnosis)[:12]
    return [f"once something is done about it: --took REMEDY, of {', '.join(ids)}"] if ids else []


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals or len(text) > 1_000:
        raise BadRequest("KEY=VALUE after --set", repr(text[:80]), hint="--set learning_rate=1e-6")
    return key.strip().lstrip("-"), value.strip()


def _afar(sources: tuple[str, ...]) -> bool:
    return all("://" in source for source in sources)


def _destination(run: Any, to: str | None) -> str:
    if to is None:
        return ""
    from rlclinic.record.telling import destination

    return destination(run, to)


def _apart(file: Path, run: Any) -> None:
    """Refuse to take a log of the run for its record."""
    from rlclinic.readers.past import on_disk

    for source in run.sources:
        path = on_disk(source.path)
        if path is not None and file.exists() and file.samefile(path):
            raise BadRequest("a file of its own for the record", f"{file} is one of the inputs", hint="-o another name")


def _tell(entry: Any, where: str, file: Path | None) -> None:
    from rlclinic.record.telling import tell

    try:
        lines = tell(entry, where)
    except RlclinicError as problem:
        kept = f"; the record in {file} is kept" if file is not None else ""
        raise BadRequest(problem.wanted, f"{problem.found}{kept}", problem.choices, problem.hint) from None
    for line in lines:
        click.echo(f"told {_shown(line)}")


def _verified(diagnosis: Any, later: Any) -> tuple[str | None, str, dict[str, str]]:
    """What came of the changes, as the next run shows it: in all, in words, and by finding."""
    from rlclinic.diagnose import diagnose
    from rlclinic.verify import verify

    found = verify(diagnosis, diagnose(later))
    word = found.verdict.replace("_", "-")
    judged = [cure for cure in found.cures if not cure.absent]
    words = {cure.finding.check: cure.verdict.replace("_", "-") for cure in judged}
    single = {check: one if one in OUTCOMES else "undecided" for check, one in words.items()}
    return (word if word in OUTCOMES and (judged or not found.cures) else None), found.says, single


def _compact(entry: dict[str, Any]) -> str:
    """The entry as JSON of a line for each thing that it names."""
    import json

    def flat(value: Any) -> str:
        return json.dumps(value, sort_keys=True, ensure_ascii=True).replace("\x7f", "\\u007f")

    lines = []
    for key, value in sorted(entry.items()):
        if isinstance(value, (dict, list)) and len(value) > 1:
            rows = [f"{flat(k)}: {flat(v)}" for k, v in sorted(value.items())] if isinstance(value, dict) else []
            inner = ",\n    ".join(rows or [flat(one) for one in value])
            ends = "{}" if isinstance(value, dict) else "[]"
            lines.append(f"  {flat(key)}: {ends[0]}\n    {inner}\n  {ends[1]}")
        else:
            lines.append(f"  {flat(key)}: {flat(value)}")
    return "{\n" + ",\n".join(lines) + "\n}"


def _summary(entry: Any) -> list[str]:
    """What was recorded, in a few lines."""
    from rlclinic.record import REPEATED
    from rlclinic.report.history import took_in_words

    severity, _, says = entry.verdict
    lines = [f"{severity}: {says}"]
    repeated = entry.because.startswith(REPEATED)
    for word, also in (("took", False), ("also changed", True)):
        told = [one for one in entry.took if one.also is also and not (repeated and also)]
        if told:
            short = [one.remedy or ", ".join(moved.key for moved in one.changes) for one in told]
            lines.append(f"{word} {', '.join(short if repeated else map(took_in_words, told))}")
    if entry.outcome:
        lines.append(f"outcome: {entry.outcome.replace('-', ' ')}{f' ({entry.because})' if entry.because else ''}")
    return lines


def _shown(text: str) -> str:
    """A line that may hold names of the user's files, without anything that a terminal would obey."""
    from rlclinic.report.blocks import plain

    return plain(text, 600)
