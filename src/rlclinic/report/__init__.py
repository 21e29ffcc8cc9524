"""A Diagnosis drawn for a reader: text for a terminal, Markdown, or the JSON form that programs read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlclinic.errors import UnknownName, nearest
from rlclinic.model import Diagnosis

if TYPE_CHECKING:
    from rlclinic.gallery import Gallery
    from rlclinic.report.blocks import Block

FORMATS = ("terminal", "json", "markdown")


def render(
    diagnosis: Diagnosis, format: str, *, width: int = 80, color: bool = False, ascii: bool = False, samples: int = 0
) -> str:
    """The whole report, ending with a newline.

    ``width`` (cells), ``color`` and ``ascii`` matter to ``terminal`` only. ``samples`` saved answers are shown of each
    finding that has examples, their words masked; by default no word of a prompt or an answer is in a report. Raises
    UnknownName for another format. Each renderer is imported when it is asked for: JSON needs neither rich nor the tables
    of names.
    """
    if format == "json":
        from rlclinic.report.contract import to_json

        return to_json(diagnosis, samples)
    _known(format)
    from rlclinic.report.document import document

    blocks = document(diagnosis, samples)
    if samples:
        blocks += _no_example(diagnosis, blocks)
    return _drawn(blocks, format, width, color, ascii)


def _no_example(diagnosis: Diagnosis, blocks: list[Block]) -> list[Block]:
    """One line where examples were asked for and no finding has any."""
    from rlclinic.report.blocks import Paragraph, Passage

    if any(isinstance(block, Passage) for block in blocks):
        return []
    why = "no finding has examples among the saved answers (rlclinic rollouts shows them)"
    why = why if diagnosis.run.rollouts else "no saved answers were read"
    return [Paragraph(f"--samples shows nothing here: {why}", tone="dim")]


def render_gallery(gallery: Gallery, format: str, *, width: int = 80, color: bool = False, ascii: bool = False) -> str:
    """The page of saved answers, ending with a newline; arguments and errors are those of ``render``."""
    from rlclinic.report import samples

    if format == "json":
        return samples.to_json(gallery)
    _known(format)
    return _drawn(samples.page(gallery), format, width, color, ascii)


def _known(format: str) -> None:
    if format not in FORMATS:
        choices = dict.fromkeys((*nearest(format, FORMATS), *FORMATS))
        raise UnknownName("a report format", repr(format), choices, f"--format {FORMATS[0]}")


def _drawn(blocks: list[Block], format: str, width: int, color: bool, ascii: bool) -> str:
    if format == "markdown":
        from rlclinic.report.markdown import render_markdown

        return render_markdown(blocks)
    from rlclinic.report.terminal import render_terminal

    return render_terminal(blocks, width, color, ascii)


def schema() -> str:
    """The JSON Schema of the JSON form, as committed beside it."""
    from rlclinic.report.contract import schema as committed

    return committed()
