"""Model cards: the shape of a transformer, and how many parameters that shape has.

The cards stand in `data/models.yaml` with their published numbers and sources. Three are there:
Llama-2 7B and 70B (Touvron et al. 2023, arXiv:2307.09288; the cards of their weights say 6.74B
and 69B) and GPT-3 (Brown et al. 2020, arXiv:2005.14165, table D.1: 174,600 million).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from coursekit import _data
from coursekit.plan._rules import PlanError, positive


@dataclass(frozen=True)
class Model:
    """The shape of a decoder-only transformer.

    Parameters
    ----------
    layers, hidden, heads, kv_heads, ffn, vocab : int
        Blocks, width, attention heads, key-value heads (equal to `heads` without grouped
        queries), width of the feed-forward part, number of tokens.
    positions : int
        Learned position embeddings; 0 for rotary ones.
    glu, tied, bias : bool
        Three feed-forward matrices instead of two; one matrix for embedding and output;
        LayerNorm and biases everywhere instead of RMSNorm and none.
    published, tokens, gpu_hours : float
        What the authors published: parameters, training tokens, GPU hours; 0 when unknown.

    Raises
    ------
    PlanError
        A size is not positive, or heads do not divide evenly.
    """

    title: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    positions: int = 0
    glu: bool = False
    tied: bool = False
    bias: bool = False
    published: float = 0.0
    tokens: float = 0.0
    gpu_hours: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab"):
            positive(name, getattr(self, name))
        if self.hidden % self.heads or self.heads % self.kv_heads:
            raise PlanError(
                "heads must divide hidden, and kv_heads must divide heads, got "
                f"hidden {self.hidden}, heads {self.heads}, kv_heads {self.kv_heads}; "
                "heads of 128 are usual"
            )

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def layer_matrices(self) -> int:
        """Weights in the matrices of one block: Q and output, K and V, the feed-forward part."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_width
        return attention + (3 if self.glu else 2) * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """All parameters, counted from the shape: blocks, embeddings, norms and biases."""
        matrices = self.layers * self.layer_matrices
        embeddings = (1 if self.tied else 2) * self.vocab * self.hidden
        norms = (2 * self.layers + 1) * self.hidden * (2 if self.bias else 1)
        biases = self.layers * (3 * self.hidden + 2 * self.kv_width + self.ffn) if self.bias else 0
        return matrices + embeddings + self.positions * self.hidden + norms + biases


def models() -> dict[str, Model]:
    """All cards by name, in the order of the file."""
    known = {field.name for field in fields(Model)}
    cards: Mapping[str, Mapping[str, Any]] = _data.load("models.yaml")
    return {
        name: Model(**{key: value for key, value in card.items() if key in known})
        for name, card in cards.items()
    }


def model(name: str) -> Model:
    """The card `name`, such as `llama2-7b`.

    Raises:
        PlanError: there is no such card; the message lists those there are.
    """
    cards = models()
    if name not in cards:
        raise PlanError(f"a model must be one of {', '.join(cards)}, got {name!r}; or make a Model")
    return cards[name]
