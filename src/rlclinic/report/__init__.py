"""A Diagnosis drawn for a reader: text for a terminal, Markdown, or the JSON form that programs read."""

from __future__ import annotations

from rlclinic.errors import UnknownName, nearest
from rlclinic.model import Diagnosis

FORMATS = ("terminal", "json", "markdown")


def render(diagnosis: Diagnosis, format: str, *, width: int = 80, color: bool = False, ascii: bool = False) -> str:
    """The whole report, ending with a newline.

    ``width`` (cells), ``color`` and ``ascii`` matter to ``terminal`` only. Raises UnknownName for another format.
    Each renderer is imported when it is asked for: JSON needs neither rich nor the tables of names.
    """
    if format == "json":
        from rlclinic.report.contract import to_json

        return to_json(diagnosis)
    if format not in FORMATS:
        choices = dict.fromkeys((*nearest(format, FORMATS), *FORMATS))
        raise UnknownName("a report format", repr(format), choices, f"--format {FORMATS[0]}")
    from rlclinic.report.document import document

    if format == "markdown":
        from rlclinic.report.markdown import render_markdown

        return render_markdown(document(diagnosis))
    from rlclinic.report.terminal import render_terminal

    return render_terminal(document(diagnosis), width, color, ascii)


def schema() -> str:
    """The JSON Schema of the JSON form, as committed beside it."""
    from rlclinic.report.contract import schema as committed

    return committed()
