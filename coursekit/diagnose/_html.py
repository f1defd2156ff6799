"""A report as one piece of HTML; whatever came from a log is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from coursekit import i18n
from coursekit.diagnose._found import listed

if TYPE_CHECKING:
    from coursekit.diagnose._report import Report, Verdict

COLOURS = {"cause": "#b3261e", "consequence": "#8a6d00", "information": "#1b6e3c"}
_STYLE = "font-family:monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:2px 0"


def html(report: Report) -> str:
    """A fragment, for notebooks."""
    head = escape(str(report).partition("\n")[0])
    return f"<div><p>{head}</p>{''.join(_verdict(v) for v in report.verdicts)}</div>"


def page(report: Report) -> str:
    """A file of its own, without anything from elsewhere."""
    title = escape(report.first.id)
    return (
        f'<!doctype html><html lang="{i18n.language()}"><head><meta charset="utf-8">'
        f"<title>{title}</title></head>"
        f'<body style="max-width:60em;margin:2em auto;font-family:sans-serif">{html(report)}'
        "</body></html>\n"
    )


def _verdict(verdict: Verdict) -> str:
    words = i18n.text
    colour = COLOURS.get(verdict.kind, "#444")
    told = ", ".join((words(f"diagnose.{verdict.kind}"), verdict.layer,
                      words(f"diagnose.{verdict.confidence}")))  # fmt: skip
    ranks = f" · {words('diagnose.ranks')}: {listed(verdict.ranks)}" if verdict.ranks else ""
    proof = "".join(f'<div style="{_STYLE}">{escape(str(line))}</div>' for line in verdict.lines)
    steps = "".join(f"<li><code>{escape(step)}</code></li>" for step in verdict.next)
    return (
        f'<div style="border-left:4px solid {colour};padding:4px 12px;margin:8px 0">'
        f'<b style="color:{colour}">{escape(verdict.id)}</b> '
        f"<small>{escape(told)}{escape(ranks)}</small>"
        f"<p>{escape(verdict.explanation)}</p>"
        f"<details open><summary>{escape(words('diagnose.proof'))}</summary>{proof}</details>"
        f"<p>{escape(words('diagnose.next'))}:</p><ul>{steps}</ul></div>"
    )
