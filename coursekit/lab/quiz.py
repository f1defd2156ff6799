"""Self-checks inside a lesson: a question, an answer, and a hint for the usual mistakes.

Questions stand in `data/quizzes/*.yaml`. Each has its `answer` beside the `formula` of
`coursekit.plan` that gives it; a test holds the two together.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from coursekit import _data
from coursekit.i18n import pick, text

TOLERANCE = 0.02

_LOOKS = {
    "ask": ("?", "#4484d6"),
    "right": ("\N{CHECK MARK}", "#2f9e5b"),
    "not_yet": ("\N{MULTIPLICATION SIGN}", "#e08a1e"),
    "unanswered": ("\N{HORIZONTAL ELLIPSIS}", "#7f868f"),
}


@dataclass(frozen=True)
class Note:
    """A few words for the learner: shown as a card in Jupyter, as text elsewhere.

    `state` is ``ask``, ``right``, ``not_yet`` or ``unanswered``.
    """

    state: str
    words: str

    def __repr__(self) -> str:
        mark, _ = _LOOKS[self.state]
        return f"{mark} {self.words}"

    def _repr_html_(self) -> str:
        _, colour = _LOOKS[self.state]
        style = f"border-left: 4px solid {colour}; padding: 6px 12px;"
        return f'<div style="{style}">{html.escape(repr(self))}</div>'


class Quiz:
    """The questions of one lesson.

    Parameters
    ----------
    lesson : str
        Its number, such as ``"00"``.

    Raises
    ------
    FileNotFoundError
        That lesson has no questions.

    Examples
    --------
    >>> quiz = Quiz("00")
    >>> quiz.check("q1", None).state
    'unanswered'
    """

    def __init__(self, lesson: str) -> None:
        self._questions: Mapping[str, Mapping[str, Any]] = _data.load(f"quizzes/{lesson}.yaml")
        self._right: set[str] = set()

    def ask(self, name: str) -> Note:
        """Show the question `name` in the learner's language.

        Raises:
            KeyError: there is no such question.
        """
        question = self._question(name)
        return Note("ask", f"{pick(question['question'], name)} {_how(question)}")

    def check(self, name: str, answer: float | bool | EllipsisType | None) -> Note:
        """Say whether `answer` is right; None and ``...`` mean that there is none yet.

        Scalars of numpy and torch are taken as the numbers they hold. Never raises for a wrong
        answer, so that all cells run to the end.

        Raises:
            KeyError: there is no such question.
        """
        question = self._question(name)
        self._right.discard(name)
        if answer is None or answer is ...:
            return Note("unanswered", text("quiz.unanswered"))
        given = _plain(answer)
        if complaint := _complaint(question["answer"], given):
            return Note("not_yet", complaint)
        if not _same(given, question["answer"], question.get("tolerance", TOLERANCE)):
            return Note("not_yet", f"{text('quiz.not_yet')} {_hint(question, given)}".strip())
        self._right.add(name)
        return Note("right", f"{text('quiz.right')} {pick(question.get('why', ''))}".strip())

    def progress(self) -> Note:
        """How many questions were answered right so far."""
        done, everything = len(self._right), len(self._questions)
        told = text("quiz.progress", right=done, all=everything)
        dots = "".join(
            "\N{BLACK CIRCLE}" if name in self._right else "\N{WHITE CIRCLE}"
            for name in self._questions
        )
        return Note("right" if done == everything else "unanswered", f"{dots}  {told}")

    def _question(self, name: str) -> Mapping[str, Any]:
        if name not in self._questions:
            raise KeyError(
                f"a question must be one of {', '.join(self._questions)}, got {name!r}; "
                "look at the cell above"
            )
        return self._questions[name]


def _how(question: Mapping[str, Any]) -> str:
    if isinstance(question["answer"], bool):
        return text("quiz.yes_or_no")
    return text("quiz.unit", unit=pick(question["unit"])) if "unit" in question else ""


def _plain(answer: Any) -> Any:
    return answer.item() if getattr(answer, "ndim", None) == 0 else answer


def _complaint(wanted: Any, answer: Any) -> str:
    """What is wrong with the kind of the answer; empty when it is of the right kind."""
    if isinstance(wanted, bool):
        return "" if isinstance(answer, bool) else text("quiz.boolean", got=repr(answer))
    number = isinstance(answer, int | float) and not isinstance(answer, bool)
    return "" if number and math.isfinite(answer) else text("quiz.number", got=repr(answer))


def _same(answer: float, wanted: float, tolerance: float) -> bool:
    if isinstance(wanted, bool):
        return answer is wanted
    return math.isclose(answer, wanted, rel_tol=tolerance)


def _hint(question: Mapping[str, Any], answer: float) -> str:
    """The hint for a known mistake, else the direction in which the number is wrong."""
    for mistake in question.get("mistakes", ()):
        if _same(answer, mistake["answer"], question.get("tolerance", TOLERANCE)):
            return pick(mistake["hint"])
    if isinstance(question["answer"], bool):
        return ""
    return text("quiz.too_small" if answer < question["answer"] else "quiz.too_big")
