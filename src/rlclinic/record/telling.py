"""Write what a record says into the tracker of the run, when asked: W&B's summary and tags, MLflow's tags."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlclinic.checks import BY_NAME, RENAMED
from rlclinic.errors import BadRequest, CannotRead, RlclinicError
from rlclinic.history import Took
from rlclinic.model import Run
from rlclinic.readers.stores import remote
from rlclinic.readers.stores.web import Refused, Server
from rlclinic.record import Record

TRACKERS = ("wandb", "mlflow")
FORMS = ("wandb", "mlflow", *remote.FORMS)
"""What may be named: the run's own tracker, or the address of its run there."""
VALUE = 400
"""Characters of one value (MLflow's stores are sure to take 5,000 bytes)."""
TAGGED = 12
"""Most findings that become tags of a W&B run (ours)."""
_TAG = 64
"""Characters of a tag, the most that W&B takes."""
_TAGS = 1_000
_MINE = "rlclinic:"


def destination(run: Run, to: str) -> str:
    """The address, or for MLflow's own files the folder, of the run in the tracker ``to``: ``wandb``, ``mlflow`` or the
    address itself. Raises BadRequest where the run was not read from that tracker and no address is given."""
    if "://" in to:
        if to.partition("://")[0].lower() not in ("wandb", "mlflow", "mlflow+http", "mlflow+https"):
            raise BadRequest("a tracker, or the address of a run there", to, FORMS)
        return to
    if to not in TRACKERS:
        raise BadRequest("a tracker, or the address of a run there", repr(to), FORMS)
    sources = [source for source in run.sources if source.role == "metrics"]
    for source in sources:
        if source.path.lower().startswith(("wandb://",) if to == "wandb" else ("mlflow://", "mlflow+http")):
            return source.path
    if to == "mlflow":
        folders = [place for source in sources if (place := _store(Path(source.path))) is not None]
        if folders:
            return str(folders[0])
    raise BadRequest(f"a run of {'W&B' if to == 'wandb' else 'MLflow'}", _elsewhere(run, to), hint=_how(run, to))


def _store(path: Path) -> Path | None:
    """The folder of a run of MLflow's file store; None for anything else."""
    return path if (path / "meta.yaml").is_file() and (path / "metrics").is_dir() else None


def _elsewhere(run: Run, to: str) -> str:
    first = next((source for source in run.sources if source.role == "metrics"), None)
    if first is None:
        return "saved answers alone"
    if first.format.split(" ")[0] == to:
        return f"{first.path}, which holds the run but not where it is kept on a server"
    return f"{first.path}, which is no run of that tracker"


def _how(run: Run, to: str) -> str:
    if to == "wandb":
        local = [re.fullmatch(r"run-(\w{1,64})\.wandb", Path(one.path).name) for one in run.sources]
        known = next((one[1] for one in local if one is not None), "RUN")
        return f"--to wandb://ENTITY/PROJECT/{known}"
    stores = [one.path for one in run.sources if one.format == "mlflow" and Path(one.path).is_file()]
    if stores:
        serve = f"mlflow server --backend-store-uri sqlite:///{shlex.quote(stores[0])}"
        return f"{serve}   then: --to mlflow://localhost:5000/RUN_ID"
    return "--to mlflow://HOST:PORT/RUN_ID"


def tell(record: Record, place: str) -> list[str]:
    """Write ``record`` to ``place`` (see ``destination``) and say, line by line, what was written where.

    What the user's own run keeps there stays: only names that begin with ``rlclinic`` are written. Raises CannotRead where a
    server cannot be reached or refuses, BadRequest where a file cannot be written.
    """
    if place.lower().startswith("wandb://"):
        return _tell_wandb(record, place)
    if "://" in place:
        return _tell_mlflow(record, place)
    return _tell_files(record, Path(place))


def planned(record: Record, place: str) -> list[str]:
    """What ``tell`` would write, without asking anything of a network."""
    if place.lower().startswith("wandb://"):
        summary, tags = values(record, "/"), _own_tags(record)
        return [f"{place}: summary {', '.join(summary)}", f"{place}: tags {', '.join(tags) or 'none'}"]
    return [f"{place}: tags {', '.join(values(record, '.'))}"]


def values(record: Record, joint: str) -> dict[str, str]:
    """What a tracker is told, by name; a value that is not known is ``none``, so that an earlier one does not stay."""
    severity, primary, says = record.verdict
    told = {
        "verdict": severity,
        "primary": primary,
        "says": says,
        "findings": ", ".join(
            f"{one.check}:{one.severity}" + ("" if one.step is None else f"@{one.step:g}") for one in record.found
        ),
        "took": ", ".join(one.remedy or _settings(one) for one in record.took),
        "outcome": record.outcome,
        "version": record.version,
    }
    return {f"rlclinic{joint}{name}": (value or "none")[:VALUE] for name, value in told.items()}


def _settings(took: Took) -> str:
    return ", ".join(f"{one.key}={one.after}" for one in took.changes)


def _own_tags(record: Record) -> list[str]:
    return [f"{_MINE}{one.check}"[:_TAG] for one in record.found if one.severity != "info"][:TAGGED]


# ------------------------------------------------------------------------------------------------------------ W&B

_HELD = """query Run($entity: String!, $project: String!, $name: String!) {
  project(name: $project, entityName: $entity) { run(name: $name) { id name state tags summaryMetrics } }
}"""
_WRITE = """mutation UpsertBucket($id: String!, $tags: [String!], $summaryMetrics: JSONString) {
  upsertBucket(input: {id: $id, tags: $tags, summaryMetrics: $summaryMetrics}) { bucket { id } }
}"""


class _Exact(Server):
    """A server whose answers are kept as they are, since they are sent back and never shown."""

    def _without_secrets(self, held: object) -> Any:
        return held


def _tell_wandb(record: Record, place: str) -> list[str]:
    parts = remote.wandb_parts(place)
    if len(parts) != 3:
        raise CannotRead("wandb://ENTITY/PROJECT/RUN", place, hint="name the run to be written to")
    entity, project, name = parts
    server, keyed = remote.wandb_server(_Exact)
    if not keyed:
        raise CannotRead("a key for W&B", "none", hint="export WANDB_API_KEY=... (or wandb login)")
    where = {"entity": entity, "project": project, "name": name}
    run = _object(_object(_asked(server, _HELD, where).get("project")).get("run"))
    identity, held = run.get("id"), run.get("summaryMetrics")
    if not isinstance(identity, str) or not identity:
        raise CannotRead(f"the run {name}", f"{server.host} does not show it", hint="an offline run: wandb sync DIR")
    try:
        summary = json.loads(held) if isinstance(held, str) and held.strip() else {} if held in (None, "") else held
    except (ValueError, RecursionError):
        summary = None
    tags = run.get("tags") or []
    if not isinstance(summary, dict) or not isinstance(tags, list) or not all(isinstance(one, str) for one in tags):
        raise CannotRead("the summary and the tags of the run", f"{server.host}: another form; nothing was written")
    told, own = values(record, "/"), _own_tags(record)
    known = {f"{_MINE}{check}"[:_TAG] for check in (*BY_NAME, *RENAMED)}
    stale = [one for one in tags if one in known and one not in own]
    added = [one for one in own if one not in tags][: max(_TAGS - len(tags), 0)]
    kept = [one for one in tags if one not in stale]
    sent = {"id": identity, "tags": [*kept, *added], "summaryMetrics": json.dumps({**summary, **told})}
    _asked(server, _WRITE, sent)
    lines = [f"{place}: summary {', '.join(told)} ({_stay(len(summary.keys() - told.keys()), 'key')})"]
    lines.append(
        f"{place}: tags {', '.join(own) or 'none of ours'} ({_stay(len(kept) - len(own) + len(added), 'tag')})"
    )
    lines += [f"{place}: tags of an earlier look removed: {', '.join(stale)}"] if stale else []
    if run.get("state") == "running":
        lines.append("the run is still going: what it logs at its end may replace the summary; record it again then")
    return lines


def _stay(many: int, what: str) -> str:
    return f"{many} other {what} stays" if many == 1 else f"{many} other {what}s stay"


def _asked(server: Server, query: str, variables: Mapping[str, object]) -> dict[str, Any]:
    """The data of one GraphQL answer. Raises CannotRead with the server's own words for an error."""
    try:
        answer = server.post("/graphql", {"query": query, "variables": variables})
    except Refused as problem:
        if problem.status not in (401, 403):
            raise
        hint = f"check that the key in WANDB_API_KEY (or ~/.netrc) may write on {server.host}"
        raise CannotRead(problem.wanted, problem.found, hint=hint) from None
    if errors := answer.get("errors"):
        first = errors[0] if isinstance(errors, list) and errors else {}
        words = server.clean(str(first.get("message", ""))) if isinstance(first, dict) else ""
        raise CannotRead("a run that may be written", f"{server.host}: {words or 'an error without words'}")
    return _object(answer.get("data"))


def _object(held: object) -> dict[str, Any]:
    return held if isinstance(held, dict) else {}


# --------------------------------------------------------------------------------------------------------- MLflow


def _tell_mlflow(record: Record, place: str) -> list[str]:
    server, identity = remote.mlflow_run(place)
    told = values(record, ".")
    written: list[str] = []
    for key, value in told.items():
        body = {"run_id": identity, "run_uuid": identity, "key": key, "value": value}
        try:
            server.post("/api/2.0/mlflow/runs/set-tag", body)
        except RlclinicError as problem:
            done = f"; written before that: {', '.join(written)}" if written else ""
            raise CannotRead("tags of a run that may be written", f"{problem.found}{done}", hint=problem.hint) from None
        written.append(key)
    return [f"{place}: tags {', '.join(told)} (all others stay)"]


def _tell_files(record: Record, folder: Path) -> list[str]:
    """MLflow's file store keeps a tag as a file of that name whose content is the value, without a line end."""
    told = values(record, ".")
    tags = folder / "tags"
    try:
        tags.mkdir(exist_ok=True)
        for key, value in told.items():
            target = tags / key
            if target.is_symlink() or (target.exists() and not target.is_file()):
                raise BadRequest("tags that are files", f"{target} is none")
            draft = folder / f".{key}.{secrets.token_hex(6)}.tmp"
            try:
                with draft.open("x", encoding="utf-8", newline="") as stream:
                    stream.write(value)
                os.replace(draft, target)
            finally:
                with suppress(OSError):
                    draft.unlink()
    except OSError as problem:
        raise BadRequest("tags that can be written", f"{tags}: {problem.strerror}") from problem
    return [f"{tags}: {', '.join(told)} (all others stay)"]
