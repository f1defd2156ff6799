"""Whether all ranks hold the same model, and whether it is still where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ._errors import ParallelError


def check_same(module: nn.Module, group: dist.ProcessGroup) -> None:
    """Raise on every rank, alike, if parameters or buffers differ anywhere in the group.

    Raises:
        ParallelError: it names the first tensor that differs and the ranks that have another one
            than rank 0.
    """
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    digests = torch.tensor([_digest(name, t) for name, t in named.items()], dtype=torch.int64)
    counts = _everyones(torch.tensor([len(named)]), group, module)
    if len({int(c) for c in counts}) > 1:
        raise ParallelError(
            "all ranks must wrap the same model, got models of "
            f"{', '.join(str(int(c)) for c in counts)} tensors; build it from one shape everywhere"
        )
    everyone = _everyones(digests, group, module)
    strange = [r for r, told in enumerate(everyone) if not torch.equal(told, everyone[0])]
    if strange:
        first = int((everyone[strange[0]] != everyone[0]).nonzero()[0])
        name = list(named)[first] if first < len(named) else "a tensor"
        raise ParallelError(
            f"all ranks must start from the same parameters, got {name} on rank "
            f"{', '.join(map(str, strange))} unlike rank 0's; seed before you build the model, or "
            "load one checkpoint everywhere"
        )


def _digest(name: str, tensor: Tensor) -> int:
    seen = hashlib.sha256(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
    seen.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return int.from_bytes(seen.digest()[:7], "big")


def _everyones(mine: Tensor, group: dist.ProcessGroup, module: nn.Module) -> list[Tensor]:
    device = next((p.device for p in module.parameters()), mine.device)
    mine = mine.to(device)
    told = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(told, mine, group=group)
    return [t.cpu() for t in told]


class Unmoved:
    """Remembers parameters, and tells if one was replaced, moved or cast since."""

    def __init__(self, module: nn.Module) -> None:
        self._known = [(name, p, p.device, p.dtype) for name, p in module.named_parameters()]

    def check(self, module: nn.Module) -> None:
        """Raise ParallelError if the module has other parameters, devices or dtypes than it had."""
        now = dict(module.named_parameters())
        for name, known, device, dtype in self._known:
            p = now.get(name)
            if p is not known:
                raise _moved(f"{name} is another parameter than the one that was wrapped")
            if p.device != device or p.dtype != dtype:
                raise _moved(f"{name} went from {dtype} on {device} to {p.dtype} on {p.device}")


def _moved(what: str) -> ParallelError:
    return ParallelError(
        f"a module must not move, be cast or be rebuilt after it was wrapped, got: {what}; do that "
        "first and wrap it then"
    )


def unique(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Each parameter once, in order: tied ones are one."""
    return list({id(p): p for p in parameters}.values())
