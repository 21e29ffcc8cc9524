"""``rlclinic`` and ``python -m rlclinic``: run the command line and turn every known error into one message."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; exit code 2 with one message on standard error when a request cannot be carried out."""
    # One thread is enough for our arrays and spares numpy the start of a pool; only in our own process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from rlclinic.cli import cli
        from rlclinic.errors import RlclinicError
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        cli(standalone_mode=True)
    except RlclinicError as problem:
        print(f"rlclinic: {problem.message()}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); nothing is wrong with the run.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as problem:
        print(f"rlclinic: cannot write the report: {problem.strerror or problem}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
