"""The text that the small GPT reads: characters, and batches cut from them."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from coursekit import _data

from ._errors import ParallelError


@cache
def text() -> str:
    """The course's own verse, `data/corpus.txt`."""
    return _data.path("corpus.txt").read_text(encoding="utf-8")


@cache
def characters() -> str:
    """The characters that the text uses, sorted: a token is a place in this string."""
    return "".join(sorted(set(text())))


def encode(words: str) -> Tensor:
    """The tokens of a text, int64, one a character.

    Raises:
        ParallelError: a character does not occur in the course's text.
    """
    known = {c: number for number, c in enumerate(characters())}
    strange = sorted(set(words) - set(known))
    if strange:
        raise ParallelError(
            f"every character must occur in the course's text, got {strange[0]!r}; "
            f"there are {characters()!r}"
        )
    return torch.tensor([known[c] for c in words])


def decode(ids: Tensor) -> str:
    """The text of tokens, the other way round from `encode`; any shape, read in a row."""
    return "".join(characters()[int(i)] for i in ids.flatten())


def batch(rows: int, length: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pieces of the text from places drawn with `seed`, and the characters that follow.

    Returns:
        `ids` and `targets`, int64 of shape (rows, length); a target is the next character.

    Raises:
        ParallelError: `rows` or `length` is not positive, or the text is shorter.
    """
    tokens = encode(text())
    if rows < 1 or not 1 <= length < len(tokens):
        raise ParallelError(
            f"a batch needs rows >= 1 and 1 <= length < {len(tokens)}, got {rows} rows of "
            f"{length}; try batch(8, 32)"
        )
    draw = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(tokens) - length, (rows,), generator=draw)
    pieces = torch.stack([tokens[int(s) : int(s) + length + 1] for s in starts])
    return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()
