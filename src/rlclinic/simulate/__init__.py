"""Runs with known failures: whole scenarios, single curve shapes, and both written as the logs of real frameworks."""

from rlclinic.simulate.dialects import as_run, configuration, forms, write
from rlclinic.simulate.illnesses import listing, scenario, scenarios
from rlclinic.simulate.scenarios import Scenario, healthy
from rlclinic.simulate.shapes import Shape, series
from rlclinic.simulate.spec import load_spec, run_from_spec
from rlclinic.simulate.trainers import DIALECTS

__all__ = [
    "DIALECTS",
    "Scenario",
    "Shape",
    "as_run",
    "configuration",
    "forms",
    "healthy",
    "listing",
    "load_spec",
    "run_from_spec",
    "scenario",
    "scenarios",
    "series",
    "write",
]
