"""What saved answers show: exact metrics, texts, what is rewarded. Reads ``Rollouts`` and no file."""

from rlclinic.answers.columns import complete

__all__ = ["complete"]
