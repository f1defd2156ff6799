"""``coursekit diagnose``: what went wrong, from logs, dumps and topology tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coursekit.diagnose._report import Report


class DiagnoseCliError(Exception):
    """A user's mistake: one line on the terminal."""


def diagnose(
    files: Annotated[
        list[Path], typer.Argument(help="Logs, dumps, folders; - for what is piped in.")
    ],
    gpu: Annotated[str, typer.Option(help="The GPU's name, such as H20, if you know it.")] = "",
    lang: Annotated[str, typer.Option(help="en or zh.")] = "en",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page here besides.")] = None,
) -> None:
    """Read logs of all ranks together and say what went wrong, with the lines that prove it.

    Exit code 0 when nothing is wrong, 1 when something is or the logs are not enough to tell.
    """
    from coursekit.i18n import language

    try:
        language(lang)
        report = _report(files, gpu)
    except ValueError as error:
        raise DiagnoseCliError(str(error)) from None
    if html is not None:
        _write(html, report)
    print(report.as_json() if json else report)
    raise typer.Exit(0 if report.healthy else 1)


def _report(files: list[Path], gpu: str) -> Report:
    from coursekit.diagnose import _diagnose, _sources
    from coursekit.diagnose._facts import Facts

    facts = Facts(gpu=gpu)
    for file in files:
        if str(file) == "-":
            facts.sources.append("-")
            _sources.stream(sys.stdin.buffer, "-", facts)
        else:
            _sources.read(file, facts)
    return _diagnose.finish(facts)


def _write(path: Path, report: Report) -> None:
    from coursekit.diagnose._html import page

    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise DiagnoseCliError(
            f"--html must be a file that can be written, got {path} ({error.strerror}); "
            "try --html report.html"
        ) from None
