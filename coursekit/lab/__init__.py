"""What a learner is asked, and how the answers are checked."""

from coursekit.lab.quiz import Note, Quiz

__all__ = ["Note", "Quiz"]
