"""LinearNO as its paper describes it, step by step: no released code was found.

Shares and products are written out, heads are split by copies, convolutions have channels first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operators.models.linear_no import LinearPhysicsAttention
from tests.oracles.plain_transolver import PlainTransolver


class PlainLinearAttention(nn.Module):
    """Of squares, with a convolution of 3 x 3 points."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.project = nn.Conv2d(width, width, 3, 1, 1)
        self.query, self.key = (nn.Linear(self.size, slices, bias=bias) for bias in (True, False))
        self.value = nn.Linear(self.size, self.size, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, u: Tensor) -> Tensor:
        batch, n1, n2, width = u.shape
        x = self.project(u.permute(0, 3, 1, 2).contiguous()).permute(0, 2, 3, 1)
        x = x.reshape(batch, n1 * n2, self.heads, self.size).permute(0, 2, 1, 3).contiguous()
        query = torch.exp(self.query(x))
        query = query / query.sum(dim=3, keepdim=True)
        key = torch.exp(self.key(x))
        key = key / key.sum(dim=2, keepdim=True)
        states = torch.einsum("bhng,bhnd->bhgd", key, self.value(x))
        y = torch.einsum("bhng,bhgd->bhnd", query, states)
        return self.out(y.permute(0, 2, 1, 3).reshape(batch, n1, n2, width))

    def copy_from(self, attention: LinearPhysicsAttention) -> None:
        """Take over the weights of an attention of the project's model."""
        for name in ("query", "key", "value", "out"):
            getattr(self, name).load_state_dict(getattr(attention, name).state_dict())
        self.project.load_state_dict(attention.project.convolution.state_dict())


class PlainLinearNO(PlainTransolver):
    """The frame of Transolver with this attention."""

    attention = PlainLinearAttention
