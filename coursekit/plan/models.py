"""Model cards: the shape of a transformer, and how many parameters that shape has.

The cards stand in `data/models.yaml` with their published numbers and sources.
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
    experts, top_k, expert_ffn, shared_experts, dense_layers, expert_nodes : int
        Mixture of experts: experts in a block, how many of them a token visits, the width of
        each (`ffn` when 0), how many every token visits besides, how many of the
        first blocks have none, and over how many nodes a token's experts may be spread (0: any).
        Without experts all are 0.
    attention, heads_width : int
        Weights of a block's attention where the usual four matrices are not what it has, and the
        width of all its heads together where that is not `hidden`; else 0.
    sequence, batch : int
        Tokens in a sequence and sequences in a step that it is trained with; 0 when unknown.
    published, active, tokens, gpu_hours : float
        What the authors published: parameters, those that a token meets, training tokens, GPU
        hours; 0 when unknown.

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
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    expert_nodes: int = 0
    attention: int = 0
    heads_width: int = 0
    sequence: int = 0
    batch: int = 0
    published: float = 0.0
    active: float = 0.0
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
        if self.experts and not 0 < self.top_k <= self.experts:
            raise PlanError(
                f"top_k must be from 1 to the {self.experts} experts, got {self.top_k}; try "
                f"top_k={min(2, self.experts)}"
            )
        if self.dense_layers > self.layers:
            raise PlanError(
                f"dense_layers must be at most the {self.layers} layers, got {self.dense_layers}; "
                "0 gives every block experts"
            )

    @property
    def dense(self) -> Model:
        """The shape itself, for formulas of blocks that are all alike, with the usual attention.

        Raises
        ------
        PlanError
            It has experts, or another attention.
        """
        if self.experts or self.attention:
            raise PlanError(
                "this is counted for blocks with the usual attention and no experts, got "
                f"{self.title}; of such a model `parameters` and `active_parameters` are known"
            )
        return self

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def attention_matrices(self) -> int:
        """Weights in one block's attention: Q and output, K and V."""
        usual = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_width
        return self.attention or usual

    @property
    def layer_matrices(self) -> int:
        """Weights in the matrices of one block without experts."""
        return self.attention_matrices + self._feed_forward(self.ffn)

    @property
    def expert_matrices(self) -> int:
        """Weights in the matrices of one expert."""
        return self._feed_forward(self.expert_ffn or self.ffn)

    @property
    def active_matrices(self) -> int:
        """Weights that a token meets in the matrices of all blocks."""
        feed = (self.layers - self.moe_layers) * self._feed_forward(self.ffn)
        each = (self.top_k + self.shared_experts) * self.expert_matrices
        mixed = self.moe_layers * (each + self.hidden * self.experts)
        return self.layers * self.attention_matrices + feed + mixed

    @property
    def moe_layers(self) -> int:
        """Blocks with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def parameters(self) -> int:
        """All parameters, counted from the shape: blocks, embeddings, norms and biases."""
        return self._count(self.experts)

    @property
    def active_parameters(self) -> int:
        """The parameters that one token meets: of the experts, `top_k` and the shared ones."""
        return self._count(self.top_k)

    @property
    def expert_parameters(self) -> int:
        """The parameters of all experts that a token chooses among, in all blocks."""
        return self.moe_layers * self.experts * self._expert

    @property
    def _expert(self) -> int:
        biases = (self.expert_ffn or self.ffn) + self.hidden if self.bias else 0
        return self.expert_matrices + biases

    def _feed_forward(self, width: int) -> int:
        return (3 if self.glu else 2) * self.hidden * width

    def _count(self, experts: int) -> int:
        dense = self.layers - self.moe_layers
        feed = self._feed_forward(self.ffn) + (self.ffn + self.hidden if self.bias else 0)
        mixed = (experts + self.shared_experts) * self._expert + self.hidden * self.experts
        embeddings = (1 if self.tied else 2) * self.vocab * self.hidden
        norms = (2 * self.layers + 1) * self.hidden * (2 if self.bias else 1)
        biases = self.layers * (2 * self.hidden + 2 * self.kv_width) if self.bias else 0
        blocks = self.layers * self.attention_matrices + dense * feed + self.moe_layers * mixed
        return blocks + embeddings + self.positions * self.hidden + norms + biases


def models(*names: str) -> dict[str, Model]:
    """The named cards, else all, in the order of the file.

    Raises:
        PlanError: there is no such card.
    """
    if names:
        return {name: model(name) for name in names}
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
