"""A Diagnosis drawn for a reader: text for a terminal, Markdown, a page, or the JSON form that programs read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlclinic.errors import UnknownName, nearest
from rlclinic.model import Diagnosis, Severity

if TYPE_CHECKING:
    from pathlib import Path

    from rlclinic.compare import Comparison
    from rlclinic.gallery import Gallery
    from rlclinic.report.blocks import Block
    from rlclinic.report.ci.words import Look
    from rlclinic.verify import Verification

FORMATS = ("terminal", "json", "markdown", "html")
CI_FORMATS = ("github", "junit", "sarif")
"""What programs of continuous integration read; only a diagnosis has these forms."""


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
    if format in CI_FORMATS:
        return render_ci(diagnosis, format)
    _known(format)
    if format == "html":
        from rlclinic.report.html import render_html
        from rlclinic.report.pages import page, title

        blocks = page(diagnosis, samples)
        blocks += _no_example(diagnosis, blocks) if samples else []
        return render_html(blocks, title=title(diagnosis))
    from rlclinic.report.document import document

    blocks = document(diagnosis, samples)
    if samples:
        blocks += _no_example(diagnosis, blocks)
    return _drawn(blocks, format, width, color, ascii)


def render_ci(
    diagnosis: Diagnosis, format: str, *, root: Path | None = None, fail_on: str = "warning", look: Look | None = None
) -> str:
    """The diagnosis for a program of continuous integration (``CI_FORMATS``), ending with a newline.

    ``root`` is the checked-out repository, by default the present directory: paths are told from there. From the severity
    ``fail_on`` on a case of JUnit fails. ``look`` says what a check is (``report.ci.words.About``), for SARIF's rules and
    JUnit's classes. No word of a prompt or an answer is in these forms. Raises UnknownName.
    """
    from pathlib import Path

    from rlclinic.report.ci.words import unknown

    root = Path() if root is None else root
    if format == "github":
        from rlclinic.report.ci.github import commands

        return commands(diagnosis, root)
    if format == "junit":
        from rlclinic.report.ci.junit import to_junit

        return to_junit(diagnosis, look or unknown, root, Severity[fail_on.upper()])
    if format == "sarif":
        from rlclinic.report.ci.sarif import to_sarif

        return to_sarif(diagnosis, look or unknown, root)
    raise UnknownName("a form for continuous integration", repr(format), CI_FORMATS, "--format junit")


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
    if format == "html":
        from rlclinic.report.blocks import plain
        from rlclinic.report.html import render_html

        return render_html(samples.page(gallery), title=plain(f"{gallery.name}: saved answers", 120))
    return _drawn(samples.page(gallery), format, width, color, ascii)


def render_comparison(
    comparison: Comparison, format: str, *, width: int = 80, color: bool = False, ascii: bool = False
) -> str:
    """Several runs side by side, ending with a newline; arguments and errors are those of ``render``."""
    if format == "json":
        from rlclinic.report.comparison_form import to_json

        return to_json(comparison)
    _known(format)
    from rlclinic.report import comparison as drawn

    if format == "html":
        from rlclinic.report.html import render_html

        return render_html(drawn.page(comparison), title=drawn.title(comparison))
    return _drawn(drawn.page(comparison), format, width, color, ascii)


def render_verification(
    verification: Verification, format: str, *, width: int = 80, color: bool = False, ascii: bool = False
) -> str:
    """The page on whether a cure worked, ending with a newline; arguments and errors are those of ``render``."""
    from rlclinic.report import verification as drawn

    if format == "json":
        return drawn.to_json(verification)
    _known(format)
    if format == "html":
        from rlclinic.report.html import render_html

        return render_html(drawn.page(verification), title=drawn.title(verification))
    return _drawn(drawn.page(verification), format, width, color, ascii)


def _known(format: str) -> None:
    if format not in FORMATS:
        choices = dict.fromkeys((*nearest(format, (*FORMATS, *CI_FORMATS)), *FORMATS, *CI_FORMATS))
        raise UnknownName("a report format", repr(format), choices, f"--format {FORMATS[0]}")


def _drawn(blocks: list[Block], format: str, width: int, color: bool, ascii: bool) -> str:
    if format == "markdown":
        from rlclinic.report.markdown import render_markdown

        return render_markdown(blocks)
    from rlclinic.report.terminal import render_terminal

    return render_terminal(blocks, width, color, ascii)


_SCHEMAS = {
    "diagnosis": "schema.json",
    "comparison": "comparison.schema.json",
    "verification": "verification.schema.json",
}
"""The JSON Schemas committed in this folder (tools/build_schema.py), by what they describe."""


def schema(of: str = "diagnosis") -> str:
    """The JSON Schema of a JSON form, as committed. Raises UnknownName."""
    from importlib import resources

    if of not in _SCHEMAS:
        choices = dict.fromkeys((*nearest(of, _SCHEMAS), *_SCHEMAS))
        raise UnknownName("what the schema describes", repr(of), choices, "rlclinic schema")
    return resources.files("rlclinic.report").joinpath(_SCHEMAS[of]).read_text(encoding="utf-8")
