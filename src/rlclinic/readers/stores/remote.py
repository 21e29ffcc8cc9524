"""Fetch one run from a tracker's server: W&B and MLflow, over their web interfaces and without their packages."""

from __future__ import annotations

import configparser
import itertools
import json
import math
import netrc
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.binary.runlog import history_rows
from rlclinic.readers.choice import chosen
from rlclinic.readers.config import SETTINGS, setting
from rlclinic.readers.rows import KEY_COUNT, Log
from rlclinic.readers.stores.trackers import INFINITE, plain_key
from rlclinic.readers.stores.web import Refused, Server, basic
from rlclinic.readers.tabular.records import refuse, trains
from rlclinic.readers.written import MOST, Points, log_of

WINDOW = 1_000
"""Steps of a W&B run asked for at once, as many as rows: each step is one row, so that the server has none to leave out
(what W&B's own client asks for)."""
WINDOWS = 5_000
"""Most such windows of full width; beyond, wider ones are asked for and the rows counted (ours)."""
SHOWN = 200
"""Characters of a name or a state that are kept (ours)."""
LISTED = 200
"""Most runs or experiments listed as choices (ours)."""
VALUES = 25_000
"""Values of a series asked for at once (the most that MLflow's server gives)."""
AT_ONCE = 4
"""Series asked for side by side (ours: a public server must not be pressed)."""
CLOUD = "https://api.wandb.ai"
"""W&B's own server. Since its move to CoreWeave Forge (September 2026) the same one also answers as ``_FORGE``, which is
the name that ``wandb login`` writes since 0.31."""
_FORGE = "api.forge.coreweave.com"
_ID = re.compile(r"[0-9a-f]{32}")
_LOCAL = re.compile(r"localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[?::1\]?")
_COPY = {
    "s3": "aws s3 cp --recursive {0} run/",
    "gs": "gcloud storage cp -r {0} run/",
    "gcs": "gcloud storage cp -r {0} run/",
    "ssh": "scp -r {1} run/",
    "sftp": "scp -r {1} run/",
    "abfs": "azcopy copy {0} run/ --recursive",
    "az": "azcopy copy {0} run/ --recursive",
    "hdfs": "hdfs dfs -get {0} run/",
}
FORMS = ("wandb://ENTITY/PROJECT/RUN", "mlflow://HOST:PORT/RUN_ID", "mlflow+http://HOST:PORT/EXPERIMENT/RUN_NAME")
"""The addresses that can be read."""


def fetch(address: str, run: str | None = None) -> Log:
    """The log of the run at ``address``; one of ``FORMS``. ``run`` names one of several where the address names none.

    Nothing is asked of any other host than the one that the address (or WANDB_BASE_URL) names, and nothing is uploaded.
    Raises CannotRead for what cannot be reached, refuses, or holds no training metric, and where several runs are there.
    """
    scheme = _checked(address)
    try:
        if scheme == "wandb":
            return _wandb(address, run)
        if scheme in ("mlflow", "mlflow+http", "mlflow+https"):
            return _mlflow(address, run)
    except ValueError as problem:  # of urlsplit, for brackets that are no address of IPv6
        raise CannotRead("an address", f"{address}: {problem}", choices=FORMS) from None
    raise CannotRead(
        "a file, a directory, or the address of a run", address, choices=FORMS, hint=_instead(scheme, address)
    )


def _checked(address: str) -> str:
    """The scheme of an address. Raises CannotRead for one that is none, or holds a password."""
    scheme = address.partition("://")[0].lower()
    if any(ord(c) < 33 or ord(c) == 127 for c in address) or len(address) > 2_000:
        raise CannotRead("an address", "one with spaces or control characters, or over 2000 long", choices=FORMS)
    if "@" in address.partition("://")[2].split("/")[0] and scheme not in ("ssh", "sftp", "scp"):
        raise CannotRead(
            "an address without a password",
            f"{scheme}://***@{address.partition('://')[2].split('/')[0].rpartition('@')[2]}",
            hint="set WANDB_API_KEY, MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        )
    return scheme


def _instead(scheme: str, address: str) -> str:
    """The command to use for an address that is not read as it stands."""
    rest = address.partition("://")[2]
    if scheme == "hf":
        kind, _, name = rest.partition("/")
        flag = {"datasets": " --repo-type dataset", "spaces": " --repo-type space"}.get(kind, "")
        repo = "/".join((name if flag else rest).split("@")[0].split("/")[:2])
        return f"hf download {_shell(repo)}{flag} --local-dir run   then: rlclinic diagnose run"
    if scheme in _COPY:
        inner = rest.replace("/", ":", 1) if scheme in ("ssh", "sftp") else rest
        return f"{_COPY[scheme].format(_shell(address), _shell(inner))}   then: rlclinic diagnose run"
    if scheme == "file":
        return f"rlclinic diagnose {_shell(unquote(urlsplit(address).path))}"
    if scheme in ("http", "https"):
        app = r"(?:(?:www\.)?wandb\.ai|forge\.coreweave\.com/wandb)/([^/?#]+)/([^/?#]+)(?:/runs/([^/?#]+))?"
        if page := re.match(app, rest):
            return "rlclinic diagnose wandb://" + "/".join(unquote(part) for part in page.groups() if part)
        if page := re.match(r"([^/]+)/.*#/(?:[\w/\-]*)runs/([0-9a-f]{32})", rest):
            return f"rlclinic diagnose mlflow+{scheme}://{page[1]}/{page[2]}"
        return f"curl -fLO {_shell(address)}   then: rlclinic diagnose FILE"
    return "copy it to this machine and give the file or directory"


def _shell(text: str) -> str:
    return text if re.fullmatch(r"[\w@%+=:,./\-]+", text) else "'" + text.replace("'", "'\\''") + "'"


def _number(value: object) -> float | None:
    """A number as JSON brings it: also as text, since JSON has no NaN and no infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return math.copysign(math.inf, number) if abs(number) >= INFINITE else number


# ---------------------------------------------------------------- W&B

_RUN = """query Run($entity: String!, $project: String!, $name: String!) {
  project(name: $project, entityName: $entity) {
    run(name: $name) { name displayName state config historyKeys historyLineCount }
  }
}"""
_RUNS = """query Runs($entity: String!, $project: String!, $first: Int, $order: String) {
  project(name: $project, entityName: $entity) {
    runs(first: $first, order: $order) { edges { node { name displayName state } } }
  }
}"""
_HISTORY = """query HistoryPage($entity: String!, $project: String!, $run: String!, $minStep: Int64!, $maxStep: Int64!,
  $pageSize: Int!) {
  project(name: $project, entityName: $entity) {
    run(name: $run) { history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize) }
  }
}"""


def wandb_parts(address: str) -> list[str]:
    """Entity, project and (where the address names it) run. Raises CannotRead for another form."""
    _checked(address)
    parts = [unquote(part) for part in address.partition("://")[2].split("?")[0].split("/") if part]
    if len(parts) == 4 and parts[2] == "runs":
        del parts[2]
    if len(parts) not in (2, 3):
        raise CannotRead(
            "wandb://ENTITY/PROJECT/RUN", address, hint="the last part of the run's page, not its display name"
        )
    return parts


def _wandb(address: str, wanted: str | None) -> Log:
    parts = wandb_parts(address)
    entity, project = parts[:2]
    server, keyed = wandb_server()

    def ask(query: str, **values: object) -> dict[str, Any]:
        told = {"query": query, "variables": {"entity": entity, "project": project, **values}}
        try:
            answer = server.post("/graphql", told)
        except CannotRead as problem:
            if not isinstance(problem, Refused):
                hint = problem.hint if keyed else f"{problem.hint}; there is no key: {_wandb_key(server, keyed)}"
                raise CannotRead(problem.wanted, problem.found, hint=hint) from None
            if problem.status in (401, 403):
                raise CannotRead(problem.wanted, problem.found, hint=_wandb_key(server, keyed)) from None
            if 300 <= problem.status < 400:
                raise CannotRead(problem.wanted, problem.found, hint="export WANDB_BASE_URL=https://NEW_HOST") from None
            raise
        data = answer.get("data")
        found = data.get("project") if isinstance(data, dict) else None
        if isinstance(found, dict):
            return found
        if errors := answer.get("errors"):
            words = errors[0].get("message", "") if isinstance(errors, list) and isinstance(errors[0], dict) else ""
            raise CannotRead(
                f"the project {entity}/{project}",
                f"{server.host}: {server.clean(str(words)) or 'an error without words'}",
                hint=_wandb_key(server, keyed),
            )
        raise CannotRead(
            f"the project {entity}/{project}",
            f"{server.host} shows no such project{'' if keyed else ' to a visitor without a key'}",
            hint=_wandb_key(server, keyed),
        )

    name = parts[2] if len(parts) == 3 else wanted or ""
    run = ask(_RUN, name=name).get("run") if name else None
    if not isinstance(run, dict):
        listed = ask(_RUNS, first=LISTED, order="-created_at").get("runs")
        name = _wandb_choice(address, listed, name or None, server)
        run = ask(_RUN, name=name).get("run")
    if not isinstance(run, dict):
        raise CannotRead(f"the run {name}", f"{server.host} does not show it", hint=_wandb_key(server, keyed))
    shown = f"wandb://{entity}/{project}/{name}"
    said = list[Warn]()
    count = torn = 0

    def history() -> Iterator[dict[str, Any]]:
        nonlocal count, torn
        for line in _wandb_rows(run, lambda **values: ask(_HISTORY, run=name, **values)):
            row = _decoded(line)
            if row is None:
                torn += 1
            else:
                count += 1
                yield _flat(row)

    rows = history_rows(history())
    if torn:
        said.append(Warn("broken_lines", f"{torn} rows hold something other than a JSON object; they were skipped"))
    total = run.get("historyLineCount")
    if isinstance(total, int) and count < total and run.get("state") != "running":
        says = f"the server holds {total} rows and gave {count}: single values may be missing"
        said.append(Warn("downsampled", says))
    if not rows.rows or not trains(rows):
        raise refuse(shown, f"a W&B run of {count} rows without a training metric", "give the run of the trainer")
    log = rows.finish(path=shown, format="wandb server", nonfinite="kept", warnings=said)
    config = _decoded(run.get("config")) or {}
    settings = {
        key: value["value"] if isinstance(value, dict) and "value" in value else value
        for key, value in list(config.items())[:SETTINGS]
        if key != "_wandb"
    }
    state = str(run.get("state") or "")
    return _told(log, settings, str(run.get("displayName") or name), state, state in ("failed", "crashed"))


def _told(log: Log, settings: dict[str, object], name: str, state: str, broken: bool) -> Log:
    """The log with what the tracker states about its run."""
    version = settings.get("transformers_version")
    return replace(
        log,
        config=settings,
        versions={"transformers": version} if isinstance(version, str) else {},
        facts={"run": name[:SHOWN], **({"status": state[:SHOWN]} if state else {})},
        ending=f"{log.format.split(' ')[0]} says that the run {'was killed' if state == 'KILLED' else state.lower()}"
        if broken
        else "",
    )


def wandb_server(kind: type[Server] = Server) -> tuple[Server, bool]:
    """The server that WANDB_BASE_URL names, else W&B's own, and whether there is a key for it."""
    base = os.environ.get("WANDB_BASE_URL", "").strip() or _from_settings() or CLOUD
    place = urlsplit(base)
    if place.scheme not in ("http", "https") or not place.hostname or "@" in place.netloc:
        raise CannotRead("WANDB_BASE_URL as https://HOST", "another form", hint=f"export WANDB_BASE_URL={CLOUD}")
    hosts = [place.netloc, place.hostname]
    if place.hostname in (urlsplit(CLOUD).hostname, _FORGE):
        hosts += [urlsplit(CLOUD).netloc, _FORGE]
    key = os.environ.get("WANDB_API_KEY", "").strip() or _from_netrc(hosts)
    if not key.isascii() or not key.isprintable():
        raise CannotRead(
            "WANDB_API_KEY as one line of ASCII", "another form", hint="https://wandb.ai/authorize shows it"
        )
    return kind(base, "W&B", basic("api", key) if key else "", (key,)), bool(key)


def _from_settings() -> str:
    """The server that ``wandb login --host`` has noted; empty without one."""
    folder = os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(Path(folder).expanduser() / "settings", encoding="utf-8")
    except (OSError, RuntimeError, UnicodeDecodeError, configparser.Error):
        return ""
    return parser.get("default", "base_url", fallback="").strip()


def _from_netrc(hosts: Sequence[str]) -> str:
    """The password that ``~/.netrc`` holds for one of these names of the server, where ``wandb login`` puts the key."""
    named = os.environ.get("NETRC")
    for path in [named] if named else ["~/.netrc", "~/_netrc"]:
        try:
            known = netrc.netrc(os.path.expanduser(path))
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            continue
        for host in hosts:
            if host in known.hosts and known.hosts[host][2]:  # not its "default" entry, which is for any host
                return str(known.hosts[host][2])
    return ""


def _wandb_key(server: Server, keyed: bool) -> str:
    if keyed:
        return f"check the names, and that the key in WANDB_API_KEY (or ~/.netrc) belongs to {server.host}"
    return "export WANDB_API_KEY=... (or wandb login); for a server of your own also WANDB_BASE_URL"


def _wandb_choice(address: str, listed: object, wanted: str | None, server: Server) -> str:
    edges = listed.get("edges") if isinstance(listed, dict) else None
    nodes = [edge.get("node") for edge in edges or [] if isinstance(edge, dict)]
    runs = {str(n.get("name")): str(n.get("displayName") or "") for n in nodes if isinstance(n, dict) and n.get("name")}
    if not runs:
        raise CannotRead("a run", f"{address}: {server.host} shows no run in this project")
    titled = [name for name, title in runs.items() if title == wanted]
    if wanted is not None and wanted not in runs and len(titled) == 1:
        return titled[0]
    labels = {f"{name} ({title})" if title and title != name else name: name for name, title in runs.items()}
    if wanted in runs:
        return str(wanted)
    first = next(iter(runs))
    hint = "" if wanted is not None else f"--run {first}, or {address.rstrip('/')}/{first}"
    return labels[chosen(address, labels, wanted, hint=hint)]


def _wandb_rows(run: Mapping[str, Any], ask: Callable[..., dict[str, Any]]) -> Iterator[object]:
    """Every history row as the server keeps it, window by window of steps, without sampling."""
    keys = _decoded(run.get("historyKeys")) or {}
    total = run.get("historyLineCount")
    last = keys.get("lastStep")
    if not isinstance(last, (int, float)) or isinstance(last, bool) or not abs(last) < 2**53:
        last = total if isinstance(total, int) else 0
    end = int(last) + 1
    width = max(WINDOW, -(-end // WINDOWS))
    start = 0
    while start < end:
        stop = min(start + width, end)
        page = ask(minStep=start, maxStep=stop, pageSize=width).get("run")
        found = page.get("history") if isinstance(page, dict) else None
        lines = found if isinstance(found, list) else []
        yield from lines
        start = stop


def _decoded(held: object) -> dict[str, Any] | None:
    """A JSON object, which the server may give as such or as text."""
    if isinstance(held, str):
        try:
            held = json.loads(held)
        except (ValueError, RecursionError):
            return None
    return held if isinstance(held, dict) else None


def _flat(row: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """A row without tables, pictures and histograms; numbers that JSON cannot hold stand as text and stay so."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            if "_type" not in value and depth < 6:
                flat.update(_flat(value, f"{prefix}{key}/", depth + 1))
        elif not f"{prefix}{key}".startswith("_wandb"):
            flat[f"{prefix}{key}"] = value
    return flat


# ---------------------------------------------------------------- MLflow

_API = "/api/2.0/mlflow"


def _mlflow(address: str, wanted: str | None) -> Log:
    server, place, parts = _mlflow_server(address)
    try:
        return _mlflow_run(server, place, parts, wanted)
    except Refused as problem:
        raise _mlflow_refusal(problem) from None


def mlflow_run(address: str) -> tuple[Server, str]:
    """The server and the id of the run at an address. Raises CannotRead where it names none."""
    _checked(address)
    try:
        server, place, parts = _mlflow_server(address)
        return server, parts[0] if parts and _ID.fullmatch(parts[0]) else _mlflow_choice(server, place, parts, None)
    except Refused as problem:
        raise _mlflow_refusal(problem) from None
    except ValueError as problem:
        raise CannotRead("an address", f"{address}: {problem}", choices=FORMS) from None


def _mlflow_refusal(problem: Refused) -> CannotRead:
    """The error with what to do where a key is wanted."""
    if problem.status not in (401, 403):
        return problem
    hint = "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, for this server"
    return CannotRead(problem.wanted, problem.found, hint=hint)


def _mlflow_server(address: str) -> tuple[Server, str, list[str]]:
    """The server, its address as the user writes it, and what names the run there."""
    scheme, _, rest = address.partition("://")
    host, _, path = rest.split("?")[0].partition("/")
    parts = [unquote(part) for part in path.replace("#/", "").split("/") if part]
    name = urlsplit(f"//{host}").hostname or ""
    transport = scheme.lower().partition("+")[2] or ("http" if _LOCAL.fullmatch(name) else "https")
    if not name:
        raise CannotRead("mlflow://HOST:PORT/RUN_ID", address, choices=FORMS)
    if not parts and name == host and "." not in name and not _LOCAL.fullmatch(name):
        hint = "name the server too; mlflow://HOST:PORT alone lists its experiments"
        raise CannotRead("mlflow://HOST:PORT/RUN_ID", f"{address}, without a run", choices=FORMS, hint=hint)
    prefix: list[str] = []
    if parts and _ID.fullmatch(parts[-1]):
        prefix, parts = parts[:-1], parts[-1:]
        if len(prefix) >= 3 and prefix[-1] == "runs" and prefix[-3] == "experiments":
            prefix = prefix[:-3]  # pasted from the page of the run
    if len(parts) > 2:
        raise CannotRead("mlflow://HOST:PORT/RUN_ID or .../EXPERIMENT/RUN_NAME", address, choices=FORMS)
    at = "".join(f"/{quote(part)}" for part in prefix)
    header, secrets = _mlflow_key()
    server = Server(f"{transport}://{host}{at}", "MLflow", header, secrets, 8 * VALUES)
    return server, f"{scheme}://{host}{at}", parts


def _mlflow_key() -> tuple[str, tuple[str, ...]]:
    """The ``Authorization`` header for MLflow's own variables, and what of it must never be shown."""
    token = os.environ.get("MLFLOW_TRACKING_TOKEN", "").strip()
    user, password = (os.environ.get(f"MLFLOW_TRACKING_{part}", "").strip() for part in ("USERNAME", "PASSWORD"))
    if not all(text.isprintable() for text in (token, user, password)) or not token.isascii():
        raise CannotRead("MLFLOW_TRACKING_... as one line each", "another form")
    if user and password:
        return basic(user, password), (password,)
    return (f"Bearer {token}", (token,)) if token else ("", ())


def _mlflow_run(server: Server, place: str, parts: list[str], wanted: str | None) -> Log:
    identity = parts[0] if parts and _ID.fullmatch(parts[0]) else ""
    if not identity:
        identity = _mlflow_choice(server, place, parts, wanted)
    try:
        run = server.get(f"{_API}/runs/get", {"run_id": identity}).get("run")
    except Refused as problem:
        if problem.status != 404:
            raise
        raise CannotRead(
            f"the run {identity}",
            f"{server.host}: {problem.says or 'no MLflow server answers there'}",
            choices=_mlflow_nearby(server),
            hint=f"{place} lists the experiments, {place}/EXPERIMENT the runs",
        ) from None
    data = run.get("data") if isinstance(run, dict) else None
    if not isinstance(run, dict) or not isinstance(data, dict):
        raise CannotRead("a run of MLflow", f"{server.host}: an answer without one", hint="check the address")
    keys = [key for key in _column(data.get("metrics"), "key") if not key.startswith("system/")][:KEY_COUNT]
    points = Points(place)
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        taken = itertools.count()
        series = pool.map(lambda key: _mlflow_series(server, identity, key, taken), keys)
        for key, held in zip(keys, series, strict=True):
            number = points.key(plain_key(key))
            for k in range(0, len(held), 3):
                points.add(number, int(held[k]), held[k + 1], held[k + 2])
    finally:
        pool.shutdown(cancel_futures=True)
    shown = f"{place}/{identity}"
    found = f"an MLflow run of {len(keys)} metrics, none of training"
    log = log_of(points, shown, "mlflow server", "kept", (), found=found, hint="give the run of the trainer")
    params = data.get("params")
    pairs = [one for one in params if isinstance(one, dict)] if isinstance(params, list) else []
    settings: dict[str, object] = {
        str(one.get("key"))[:SHOWN]: setting(str(one.get("value", ""))) for one in pairs[:SETTINGS]
    }
    info = run.get("info")
    info = info if isinstance(info, dict) else {}
    state = str(info.get("status") or "")
    return _told(log, settings, str(info.get("run_name") or identity), state, state in ("FAILED", "KILLED"))


def _mlflow_series(server: Server, run: str, key: str, taken: Iterator[int]) -> array[float]:
    """Step, seconds since 1970 and value, one after the other, for every value of one series.

    ``taken`` counts the values of all series of the run. Raises CannotRead for more than are kept of one.
    """
    found = array("d")
    token = ""
    seen: set[str] = set()
    while True:
        values = {"run_id": run, "run_uuid": run, "metric_key": key, "max_results": VALUES}
        if token:
            values["page_token"] = token
        page = server.get(f"{_API}/metrics/get-history", values)
        metrics = page.get("metrics")
        for one in metrics if isinstance(metrics, list) else []:
            if not isinstance(one, dict):
                continue
            value = _number(one.get("value", 0.0))
            step, at = _number(one.get("step", 0)), _number(one.get("timestamp", 0))
            if value is not None and step is not None and at is not None and math.isfinite(step):
                found.extend((step, at / 1000, value))
                if next(taken) >= MOST:
                    raise CannotRead(
                        "a run of bounded size",
                        f"{server.host}: more than {MOST} values in one run",
                        hint="export the metrics to CSV with the tracker's own client",
                    )
        token = str(page.get("next_page_token") or "")
        if not token or token in seen:
            return found
        seen.add(token)


def _mlflow_choice(server: Server, place: str, parts: list[str], wanted: str | None) -> str:
    """The id of the run that ``EXPERIMENT/RUN_NAME`` or ``wanted`` names; raises CannotRead with the choices."""
    experiments = _mlflow_experiments(server)
    if not parts:
        with_runs = {name: number for name, number in experiments.items() if name != "Default" or len(experiments) == 1}
        name = chosen(place, with_runs, None, hint=f"{place}/EXPERIMENT lists its runs")
    else:
        name = chosen(place, experiments, parts[0])
    body = {"experiment_ids": [experiments[name]], "max_results": LISTED, "order_by": ["attributes.start_time DESC"]}
    runs = server.post(f"{_API}/runs/search", body).get("runs")
    found: dict[str, str] = {}
    for run in runs if isinstance(runs, list) else []:
        info = run.get("info") if isinstance(run, dict) else None
        if isinstance(info, dict) and (identity := str(info.get("run_id") or info.get("run_uuid") or "")):
            title = str(info.get("run_name") or identity)
            found[title if title not in found else f"{title} {identity}"] = identity
    if not found:
        raise CannotRead("a run", f"{place}/{name}: no run in this experiment")
    named = parts[1] if len(parts) == 2 else wanted
    by_id = [one for one in found.values() if named and len(named) >= 6 and one.startswith(named)]
    return by_id[0] if len(by_id) == 1 else found[chosen(f"{place}/{name}", found, named)]


def _mlflow_experiments(server: Server) -> dict[str, str]:
    listed = server.post(f"{_API}/experiments/search", {"max_results": LISTED}).get("experiments")
    rows = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return {str(one.get("name")): str(one.get("experiment_id")) for one in rows}


def _mlflow_nearby(server: Server) -> list[str]:
    """Names of experiments to choose from, none where the server does not tell."""
    try:
        return sorted(_mlflow_experiments(server))
    except CannotRead:
        return []


def _column(rows: object, name: str) -> list[str]:
    listed = rows if isinstance(rows, list) else []
    return list(dict.fromkeys(str(one[name]) for one in listed if isinstance(one, dict) and one.get(name)))
