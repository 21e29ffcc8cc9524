"""Alert rules and panels for other programs, made of the same limits and names as the checks."""

from __future__ import annotations

from rlclinic.errors import UnknownName, nearest
from rlclinic.templates.levels import Naming, naming

KINDS = ("prometheus", "grafana", "wandb")


def template(kind: str, names: Naming | None = None) -> str:
    """The template of ``kind`` (``KINDS``) as text, ending with a newline; the same names give the same bytes. Raises
    UnknownName."""
    names = Naming() if names is None else names
    if kind == "prometheus":
        from rlclinic.templates.prometheus import rules

        return rules(names)
    if kind == "grafana":
        from rlclinic.templates.grafana import dashboard

        return dashboard(names)
    if kind == "wandb":
        from rlclinic.templates.wandb import script

        return script(names)
    raise UnknownName(
        "a kind of template", repr(kind)[:80], nearest(kind, KINDS) or KINDS, "rlclinic templates prometheus"
    )


__all__ = ["KINDS", "Naming", "naming", "template"]
