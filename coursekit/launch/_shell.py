"""Reads a shell block as far as launching needs it, and never runs it.

Lines that go on after a backslash, comments, quotes, `;` `&&` `||` `|` `&`, assignments, `export`,
`#SBATCH` lines and files written by `cat > FILE <<END` are understood. Loops and conditions are
read as if each of their commands ran once.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Script", "Simple", "Word", "read", "split"]

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_TARGET = re.compile(r"(?:^|\s)>{1,2}\s*(\S+)")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "{", "(", "!", "time"})
_PROMPT = re.compile(r"\A(?:\$ |[\w.-]+@[\w.-]+[:\s][^\s$#]*\s*[$#] |\[[\w.-]+@[^\]]*\][$#] )")


@dataclass(frozen=True)
class Word:
    """A word as written, and what the shell makes of it, variables left alone."""

    raw: str
    value: str


@dataclass(frozen=True)
class Simple:
    """One command: its words without the assignments in front.

    Attributes:
        number: its line, from 1.
        text: as written, on one line.
        assigned: what stands in front, `A=1 command`; of a line without a command: all.
        prompt: what looked like a shell's prompt in front.
    """

    number: int
    text: str
    words: tuple[Word, ...]
    assigned: dict[str, str]
    prompt: str = ""


@dataclass
class Script:
    """What a block holds.

    Attributes:
        commands: in their order.
        files: text by name, of here-documents.
        sbatch: the words of the #SBATCH lines.
        bad: lines that no shell reads: number, text, why ("quote", "blank").
    """

    commands: list[Simple] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    sbatch: list[Word] = field(default_factory=list)
    bad: list[tuple[int, str, str]] = field(default_factory=list)


def read(text: str) -> Script:
    """The block's commands; what cannot be read stands in `bad`."""
    script = Script()
    lines = text.replace("\0", "").replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        at = _statement(script, lines, at)
    return script


def _statement(script: Script, lines: list[str], start: int) -> int:
    """Read what begins in line `start`; give the line after it."""
    if lines[start].lstrip().startswith("#SBATCH"):
        script.sbatch += split(lines[start].lstrip().removeprefix("#SBATCH").split(" #")[0]) or []
        return start + 1
    text, end = _joined(lines[start], lines, start + 1)
    if re.search(r"\\[ \t]+$", text) and end < len(lines) and lines[end].strip():
        script.bad.append((start + 1, lines[end - 1], "blank"))
        text, end = _joined(text.rstrip(), lines, end)
    pieces = list(_pieces(text))
    one = end
    while pieces and pieces[-1] is None and end < len(lines):
        text, end = text + "\n" + lines[end], end + 1
        pieces = list(_pieces(text))
    if pieces and pieces[-1] is None:
        script.bad.append((start + 1, lines[start], "quote"))
        return one
    end = _here(script, text, lines, end)
    for piece in pieces:
        simple = _simple(piece or "", start + 1)
        if simple:
            script.commands.append(simple)
    return end


def _joined(text: str, lines: list[str], end: int) -> tuple[str, int]:
    while text.endswith("\\"):
        more = lines[end].strip() if end < len(lines) else ""
        text, end = f"{text[:-1].rstrip()} {more}", min(end + 1, len(lines))
    return text, end


def _here(script: Script, text: str, lines: list[str], end: int) -> int:
    """Take a here-document's lines; its file's name if it is written to one."""
    found = _HEREDOC.search(text)
    if not found:
        return end
    last = next((i for i in range(end, len(lines)) if lines[i].strip() == found[2]), None)
    if last is None:
        return end
    target = _TARGET.search(text)
    if target:
        name = (split(target[1]) or [Word("", "")])[0].value
        script.files[name] = "\n".join(lines[end:last]) + "\n"
    return last + 1


def _pieces(text: str) -> Iterator[str | None]:
    """The commands between `;`, `&&`, `|` and their like, comments gone; None last when a quote or
    a `$(` stays open.
    """
    piece, quote, depth, at = "", "", 0, 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            piece, at = piece + text[at : at + 2], at + 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif text.startswith("$(", at):
            depth += 1
        elif char == ")" and depth:
            depth -= 1
        elif not depth and char == "#" and (not piece or piece[-1].isspace()):
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        elif not depth and char in ";|&\n" and not _redirects(text, at):
            yield piece
            piece, at = "", at + 1
            continue
        piece, at = piece + char, at + 1
    yield piece
    if quote or depth:
        yield None


def _redirects(text: str, at: int) -> bool:
    return text[at] == "&" and (text[at - 1 : at] == ">" or text[at + 1 : at + 2] == ">")


def split(text: str) -> list[Word] | None:
    """The words as shlex cuts them; None for an open quote. What is in `$( )` stays whole."""
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    def back(word: str) -> str:
        return re.sub(r"\0(\d+)\0", lambda m: kept[int(m[1])], word)

    text = re.sub(r"\$\([^()]*\)", keep, text)
    stream = io.StringIO(text)
    lexer = shlex.shlex(stream, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words, start = [], 0
    try:
        while (value := lexer.get_token()) is not None:
            raw = text[start : stream.tell()].strip()
            start = stream.tell()
            words.append(Word(back(raw), back(value)))
    except ValueError:
        return None
    return words


def _simple(piece: str, number: int) -> Simple | None:
    piece = piece.strip()
    prompt = _PROMPT.match(piece)
    words = split(piece[prompt.end() :] if prompt else piece) or []
    while words and words[0].value in _KEYWORDS:
        words = words[1:]
    text = " ".join(w.raw for w in words)
    assigned: dict[str, str] = {}
    while words and (found := _ASSIGNED.fullmatch(words[0].value)):
        assigned[found[1]] = found[2]
        words = words[1:]
    if not words and not assigned:
        return None
    return Simple(number, text, tuple(words), assigned, prompt[0].strip(" [") if prompt else "")
