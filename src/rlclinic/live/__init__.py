"""A diagnosis while the training goes on: in the training loop, beside growing files, as alerts, as a page."""

from rlclinic.live.events import Event
from rlclinic.live.monitor import Monitor

__all__ = ["Event", "Monitor"]
