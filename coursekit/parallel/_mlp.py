"""The feed-forward part of a block; each expert is one too."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Module):
    """forward: up, GELU, down."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.up: nn.Module = nn.Linear(hidden, ffn)
        self.down: nn.Module = nn.Linear(ffn, hidden)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(F.gelu(self.up(x)))
        return y
