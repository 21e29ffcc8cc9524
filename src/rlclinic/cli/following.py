"""What `watch` and `serve` have in common: whom they follow, by what it is judged, and the state that only one may hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlclinic.cli.options import columns_of
from rlclinic.errors import BadRequest

if TYPE_CHECKING:
    from rlclinic.live.following import Follower


def follower(
    command: str,
    sources: Sequence[str],
    *,
    every: float,
    state: Path | None,
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
    own_names: Path | None,
    eval_key: str | None,
    answers: tuple[Path, ...],
    columns: tuple[str, ...],
    limits: Path | None,
    baseline_file: Path | None,
    saved: tuple[float, ...],
) -> Follower:
    """Whoever follows ``sources`` for ``rlclinic COMMAND``, as ``read_options`` and ``judge_options`` ask.

    What no look could ever use (an unknown trainer, a file of names or limits that is none) is told here, before the
    log is there: raises BadRequest, BadTable and UnknownName.
    """
    from rlclinic import names
    from rlclinic.baseline import read_baseline
    from rlclinic.diagnose import read_limits
    from rlclinic.live.following import Follower
    from rlclinic.names.own import read_names

    growing(command, sources)
    if framework is not None:
        names.detect((), given=framework)
    if own_names is not None:
        read_names(own_names)
    return Follower(
        sources,
        options={
            "framework": framework,
            "config": configs,
            "run": chosen_run,
            "names": own_names,
            "eval_key": eval_key,
            "rollouts": answers,
            "answer_columns": columns_of(columns),
        },
        limits=None if limits is None else read_limits(limits),
        baseline=None if baseline_file is None else read_baseline(baseline_file),
        checkpoints=saved,
        every=every,
        state=state,
    )


def growing(command: str, sources: Sequence[str]) -> None:
    """Raises BadRequest for sources that nobody can follow: none, and a pipe."""
    if not sources:
        raise BadRequest("a SOURCE", "none", hint=f"rlclinic {command} RUN")
    if "-" in sources:
        from rlclinic.live.parts import TEE

        raise BadRequest("files or a directory that grow", "standard input", hint=TEE)


@contextmanager
def alone(state: Path | None) -> Iterator[None]:
    """Hold the state for this process; nothing without one, and where the system has no such locks or no place for them.

    Raises BadRequest while another process follows with the same state: both would tell the same.
    """
    if state is None:
        yield
        return
    try:
        import fcntl

        state.parent.mkdir(parents=True, exist_ok=True)
        held = open(state.with_name(f"{state.name}.lock"), "a")  # noqa: SIM115
    except (ImportError, OSError):
        yield
        return
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = f"{state} is in use: the same is being watched already"
            raise BadRequest("a state of its own", found, hint="--state ANOTHER_FILE") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        held.close()


def apart(state: Path, inputs: Sequence[Path]) -> None:
    """Raises BadRequest for a state that would replace a file of the user's."""
    from rlclinic.live.following import read_state

    taken = any(path.exists() and state.exists() and state.samefile(path) for path in inputs)
    strange = state.exists() and (not state.is_file() or (state.stat().st_size and read_state(state) is None))
    if taken or strange:
        raise BadRequest("a new file for the state, or one that watch made", f"{state}", hint="--state ANOTHER_FILE")


def beside(state: Path) -> Path:
    """The directory beside the file ``state`` that keeps what was not sent; another file has another one."""
    return state.with_name(f"{state.name}.alerts")
