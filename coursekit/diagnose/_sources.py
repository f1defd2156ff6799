"""What may be diagnosed: files, folders, text, lines."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

from coursekit.diagnose import _recorder
from coursekit.diagnose._errors import DiagnoseError
from coursekit.diagnose._event import Line
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._scan import scan

BLOCK = 1 << 22
_HELP = "give a file, a folder, the text itself, or lines"


def read(source: Any, facts: Facts) -> None:
    """Read a source of any of these kinds.

    Raises
    ------
    DiagnoseError
        There is no such file, or it is none of these.
    """
    if isinstance(source, Path):
        _path(source, facts)
    elif isinstance(source, (str, bytes)):
        _text(source, facts)
    elif isinstance(source, Iterable) and not isinstance(source, dict):
        _many(source, facts)
    elif isinstance(source, dict) and "entries" in source:
        facts.dumps += _recorder.dumps(source, "dump")
    else:
        raise DiagnoseError(
            f"a source must be text or a path, got {type(source).__name__}; {_HELP}"
        )


def _text(text: str | bytes, facts: Facts) -> None:
    if isinstance(text, bytes):
        _bytes(text, "text", facts)
        return
    # A name is one word; a log's line has spaces.
    if text and "\n" not in text and len(text) < 4096 and "\0" not in text:
        if os.path.exists(text):
            _path(Path(text), facts)
            return
        if not any(c.isspace() for c in text):
            raise DiagnoseError(f"a source must exist, got {text!r}; {_HELP}")
    _bytes(text.encode("utf-8", "replace"), "text", facts)


def _many(sources: Iterable[Any], facts: Facts) -> None:
    """Paths when the first is one, else lines."""
    stream = iter(sources)
    first = next(stream, None)
    if first is None:
        return
    if isinstance(first, Path) or (isinstance(first, str) and _names(first)):
        for one in (first, *stream):
            _path(Path(one), facts)
        return
    scan("lines", _blocks_of_lines(first, stream), facts)


def _names(text: str) -> bool:
    return bool(text) and "\n" not in text and len(text) < 4096 and "\0" not in text and (
        os.path.exists(text)
    )  # fmt: skip


def _blocks_of_lines(first: Any, stream: Iterator[Any]) -> Iterator[bytes]:
    block: list[bytes] = []
    for line in chain([first], stream):
        if isinstance(line, str):
            line = line.encode("utf-8", "replace")
        if not isinstance(line, (bytes, bytearray)):
            raise DiagnoseError(f"a line must be text, got {type(line).__name__}; {_HELP}")
        block.append(bytes(line).rstrip(b"\r\n"))
        if len(block) >= 10_000:
            yield b"\n".join(block) + b"\n"
            block = []
    if block:
        yield b"\n".join(block) + b"\n"


def _path(path: Path, facts: Facts) -> None:
    try:
        if path.is_dir():
            for name in sorted(p for p in path.rglob("*") if p.is_file()):
                if not any(part.startswith(".") for part in name.relative_to(path).parts):
                    _file(name, facts)
        else:
            _file(path, facts)
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise DiagnoseError(f"a source must be readable, got {path} ({told}); {_HELP}") from None


def _file(path: Path, facts: Facts) -> None:
    name = str(path)
    facts.sources.append(name)
    with path.open("rb") as opened:
        head = opened.read(4096)
        opened.seek(0)
        if head[:2] == b"\x1f\x8b":
            with gzip.open(opened) as inside:
                stream(inside, name, facts)
        elif _is_dump(head) and path.stat().st_size < _recorder.LARGEST:
            data = opened.read()
            if not _dump(data, name, facts) and not _recorder.is_pickle(head):
                _scan_bytes(data, name, facts)
        else:
            stream(opened, name, facts)


def _is_dump(head: bytes) -> bool:
    return _recorder.is_pickle(head) or head.lstrip()[:1] in (b"{", b"[")


def _bytes(data: bytes, name: str, facts: Facts) -> None:
    facts.sources.append(name)
    head = data[:4096]
    # A line may begin with [, so text is a dump only where it says so.
    if _is_dump(head) and b"entries" in data and _dump(data, name, facts):
        return
    _scan_bytes(data, name, facts)


def _scan_bytes(data: bytes, name: str, facts: Facts) -> None:
    scan(name, [data], facts)


def _dump(data: bytes, name: str, facts: Facts) -> bool:
    """Whether it was a dump; a pickle that is none is told, and never run."""
    try:
        found = _recorder.load(data, name)
    except DiagnoseError as error:
        if _recorder.is_pickle(data[:2]):
            facts.refused.append(Line(name, 1, str(error)[:300]))
        return False
    facts.dumps += found
    facts.bytes += len(data) if found else 0
    return bool(found)


def stream(opened: IO[bytes] | Any, name: str, facts: Facts) -> None:
    """Read what is open, block by block."""
    scan(name, _blocks(opened, name), facts)


def _blocks(opened: Any, name: str) -> Iterator[bytes]:
    rest = b""
    while True:
        try:
            block = opened.read(BLOCK)
        except (OSError, EOFError, zlib.error) as error:
            told = getattr(error, "strerror", None) or str(error)
            raise DiagnoseError(
                f"a source must be readable, got {name} ({told}); {_HELP}"
            ) from None
        if not block:
            break
        end = block.rfind(b"\n")
        if end < 0 and len(rest) < 4 * BLOCK:
            rest += block
            continue
        yield rest + block[: end + 1]
        rest = block[end + 1 :]
    if rest:
        yield rest
