"""Quizzes: answers come from the ledger, usual mistakes get their hint, nothing ever raises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import coursekit
from coursekit import _data, cost, measure, pipeline, plan, schedule, topology
from coursekit.i18n import LANGUAGES
from coursekit.lab import Note, Quiz

# What formulas may name, besides all of `plan`.
MODULES = (cost, measure, pipeline, schedule, topology)
LESSONS = sorted(path.stem for path in (_data.folder() / "quizzes").glob("*.yaml"))
QUESTIONS = [
    (lesson, name, question)
    for lesson in LESSONS
    for name, question in _data.load(f"quizzes/{lesson}.yaml").items()
]
NAMES = [f"{lesson}-{name}" for lesson, name, _ in QUESTIONS]


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def test_lesson_00_asks_six_questions() -> None:
    assert [name for lesson, name, _ in QUESTIONS if lesson == "00"] == [
        f"q{number}" for number in range(1, 7)
    ]


@pytest.mark.parametrize(("lesson", "name", "question"), QUESTIONS, ids=NAMES)
def test_the_answer_is_what_its_formula_gives(
    lesson: str, name: str, question: dict[str, Any]
) -> None:
    names = {**vars(plan), **{module.__name__.partition(".")[2]: module for module in MODULES}}
    wanted = eval(question["formula"], names)
    assert type(wanted) is bool or isinstance(wanted, int | float)
    if isinstance(wanted, bool):
        assert question["answer"] is wanted
    else:
        assert question["answer"] == pytest.approx(wanted, rel=1e-3)
    assert Quiz(lesson).check(name, wanted).state == "right"


@pytest.mark.parametrize(("lesson", "name", "question"), QUESTIONS, ids=NAMES)
def test_every_word_is_there_in_both_languages(
    lesson: str, name: str, question: dict[str, Any]
) -> None:
    tables = [question["question"], question["why"]]
    tables += [mistake["hint"] for mistake in question.get("mistakes", [])]
    assert [set(table) for table in tables] == [set(LANGUAGES)] * len(tables)


@pytest.mark.parametrize(("lesson", "name", "question"), QUESTIONS, ids=NAMES)
def test_each_mistake_has_its_own_hint(lesson: str, name: str, question: dict[str, Any]) -> None:
    quiz = Quiz(lesson)
    for mistake in question.get("mistakes", []):
        note = quiz.check(name, mistake["answer"])
        assert note.state == "not_yet"
        assert mistake["hint"]["en"] in note.words


def test_known_mistakes_of_the_first_question() -> None:
    card = plan.model("llama2-7b")
    quiz = Quiz("00")
    assert "2 bytes" in quiz.check("q1", 2 * card.parameters / 1e9).words
    assert "GiB" in quiz.check("q1", 16 * card.parameters / 2**30).words
    assert "too small" in quiz.check("q1", 60).words
    assert "too big" in quiz.check("q1", 1000).words


@pytest.mark.parametrize("answer", [108, 107.8, 107.81, 109])
def test_a_rounded_answer_is_right(answer: float) -> None:
    assert Quiz("00").check("q1", answer).state == "right"


@pytest.mark.parametrize("answer", [np.float32(107.8), np.int64(108), torch.tensor(107.8)])
def test_a_number_may_come_from_a_library(answer: Any) -> None:
    assert Quiz("00").check("q1", answer).state == "right"


@pytest.mark.parametrize("answer", [np.bool_(False), torch.tensor(False)])
def test_a_truth_value_may_come_from_a_library(answer: Any) -> None:
    assert Quiz("00").check("q2", answer).state == "right"


@pytest.mark.parametrize("answer", [None, ...])
def test_none_is_not_answered_yet(answer: Any) -> None:
    note = Quiz("00").check("q1", answer)
    assert note == Note(
        "unanswered", "Not answered yet. Put your answer in place of None and run the cell again."
    )


@pytest.mark.parametrize("answer", ["108 GB", True, math.nan, [108], np.array([108, 109])])
def test_what_is_no_number_is_told_so(answer: Any) -> None:
    note = Quiz("00").check("q1", answer)
    assert note.state == "not_yet"
    assert note.words == f"The answer is a number, got {answer!r}. Write it without its unit."


@pytest.mark.parametrize("answer", [0, "no", 80])
def test_yes_or_no_is_a_truth_value(answer: Any) -> None:
    note = Quiz("00").check("q2", answer)
    assert (note.state, note.words) == (
        "not_yet",
        f"The answer is True or False, got {answer!r}.",
    )


def test_progress_counts_what_is_right_now() -> None:
    quiz = Quiz("00")
    assert quiz.progress().words.endswith("0 of 6 right")
    quiz.check("q1", 108)
    quiz.check("q2", False)
    assert quiz.progress().words == "\u25cf\u25cf\u25cb\u25cb\u25cb\u25cb  2 of 6 right"
    quiz.check("q1", 7)
    assert quiz.progress().words.endswith("1 of 6 right")


def test_progress_ends_in_right() -> None:
    quiz = Quiz("00")
    for lesson, name, question in QUESTIONS:
        if lesson == "00":
            quiz.check(name, question["answer"])
    assert quiz.progress().state == "right"


def test_questions_speak_the_learners_language() -> None:
    quiz = Quiz("00")
    assert "plain data parallelism" in quiz.ask("q1").words
    assert quiz.ask("q1").words.endswith("Unit: GB (1e9).")
    coursekit.language("zh")
    assert "\u6570\u636e\u5e76\u884c" in quiz.ask("q1").words
    assert quiz.check("q1", 108).words.startswith("\u6b63\u786e")


def test_a_note_is_a_card_in_jupyter_and_escapes_what_it_shows() -> None:
    note = Quiz("00").check("q1", "<b>")  # type: ignore[arg-type]
    assert "&lt;b&gt;" in note._repr_html_()
    assert "<b>" not in note._repr_html_()
    assert repr(note).startswith("\N{MULTIPLICATION SIGN} ")


def test_unknown_names_are_told_what_there_is() -> None:
    with pytest.raises(KeyError, match="a question must be one of q1, q2"):
        Quiz("00").ask("q99")
    with pytest.raises(FileNotFoundError, match=r"got 'quizzes/99.yaml'; there are 00.yaml"):
        Quiz("99")
