"""Baselines: what runs that the user calls healthy allow, learned once and used in the diagnosis of others like them."""

from rlclinic.baseline.judging import judged
from rlclinic.baseline.learning import Learned, Learning, Source, learn
from rlclinic.baseline.written import read_baseline, to_toml

__all__ = ["Learned", "Learning", "Source", "judged", "learn", "read_baseline", "to_toml"]
