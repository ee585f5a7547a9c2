"""The Orthogonal Neural Operator as its publication and released settings describe it.

Linear, softmax or Nyström attention step by step, the covariance of each batch in float32, a
Cholesky factor that is inverted explicitly, the published sum in place of an inner product, or the
released batch norm and layer norm in place of the factor (zhijie-group/Orthogonal-Neural-operator,
c9bc85d), and the matrix W_V of equation 5. The baseline of the benchmarks; on as many landmarks as
segments of equal size the function of the project's model, up to its larger jitter and float64.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operators.models.ono import ONO, OrthogonalLayer, StreamAttention
from operators.nn.attention import NystromAttention


class PlainAttention(nn.Module):
    """Of the released code ("linear"), of Katharopoulos et al. 2020 ("elu"), or with a softmax."""

    def __init__(self, width: int, heads: int, kind: str) -> None:
        super().__init__()
        self.heads, self.size, self.kind = heads, width // heads, kind
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, u: Tensor) -> Tensor:
        batch, n, width = u.shape

        def split(v: Tensor) -> Tensor:
            return v.view(batch, n, self.heads, self.size).transpose(1, 2).contiguous()

        q, k, v = split(self.query(u)), split(self.key(u)), split(self.value(u))
        if self.kind == "linear":
            q = torch.softmax(q, dim=-1) * self.size**-0.5
            k = torch.softmax(k, dim=-2)
            matrix = torch.einsum("bhnd,bhne->bhde", k, v)
            y = torch.einsum("bhnd,bhde->bhne", q, matrix)
        else:  # n x n shares, which sum to 1 in each row
            if self.kind == "elu":
                q, k = (torch.where(w > 0, w + 1, w.exp()) for w in (q, k))
                shares = torch.einsum("bhnd,bhmd->bhnm", q, k)
            else:
                shares = (torch.einsum("bhnd,bhmd->bhnm", q, k) / self.size**0.5).exp()
            y = torch.einsum("bhnm,bhmd->bhnd", shares / shares.sum(-1, keepdim=True), v)
        return self.out(y.transpose(1, 2).reshape(batch, n, width))

    @torch.no_grad()
    def copy_from(self, attention: StreamAttention) -> None:
        self.load_state_dict(attention.state_dict())


class PlainNystromAttention(nn.Module):
    def __init__(self, width: int, heads: int, landmarks: int) -> None:
        super().__init__()
        self.heads, self.size, self.landmarks = heads, width // heads, landmarks
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.convolution = nn.Conv2d(
            heads, heads, (33, 1), padding=(16, 0), groups=heads, bias=False
        )
        self.out = nn.Linear(width, width)

    def forward(self, u: Tensor) -> Tensor:
        batch, n, width = u.shape
        m = self.landmarks
        if n % m:  # zeros in front
            u = nn.functional.pad(u, (0, 0, m - n % m, 0))
        q, k, v = self.project(u).chunk(3, dim=-1)
        q, k, v = (
            y.view(batch, -1, self.heads, self.size).transpose(1, 2).contiguous() for y in (q, k, v)
        )
        q = q * self.size**-0.5
        segment = q.shape[2] // m
        q_m = q.view(batch, self.heads, m, segment, self.size).sum(3) / segment
        k_m = k.view(batch, self.heads, m, segment, self.size).sum(3) / segment
        first = torch.einsum("bhid,bhjd->bhij", q, k_m).softmax(-1)
        middle = torch.einsum("bhid,bhjd->bhij", q_m, k_m).softmax(-1)
        last = torch.einsum("bhid,bhjd->bhij", q_m, k).softmax(-1)
        size = middle.abs()
        z = middle.transpose(-1, -2) / (size.sum(-1).max() * size.sum(-2).max())
        one = torch.eye(m, dtype=u.dtype)
        for _ in range(6):
            az = middle @ z
            z = 0.25 * z @ (13 * one - az @ (15 * one - az @ (7 * one - az)))
        y = (first @ z) @ (last @ v) + self.convolution(v)
        y = self.out(y.transpose(1, 2).reshape(batch, -1, width))
        return y[:, -n:]

    @torch.no_grad()
    def copy_from(self, attention: NystromAttention) -> None:
        self.load_state_dict(attention.state_dict())


class PlainLayer(nn.Module):
    def __init__(
        self, width: int, hidden: int, k: int, attention: nn.Module, out: int, norm: str,
        value: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention = attention
        self.value = nn.Parameter(torch.empty(width, width)) if value else None  # f W_V
        self.batch_norm, self.layer_norm = nn.BatchNorm1d(k), nn.LayerNorm(k)
        self.norm = norm
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.project = nn.Linear(width, k)
        self.eigenvalues = nn.Parameter(torch.zeros(k))
        self.update: nn.Module = nn.Linear(width, out)
        if out == width:
            self.update = nn.Sequential(
                nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)
            )
        self.average: Tensor | None = None

    def forward(self, g: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        g = g + self.attention(self.norm1(g))
        g = g + self.mlp(self.norm2(g))
        psi = self.functions(self.project(g))
        v = f if self.value is None else torch.einsum("bnc,cd->bnd", f, self.value)
        coefficients = torch.einsum("bnk,bnd->bkd", psi, v)
        scaled = psi * nn.functional.softplus(self.eigenvalues)
        f = f + torch.einsum("bnk,bkd->bnd", scaled, coefficients)
        return g, self.update(self.norm3(f))

    def functions(self, psi: Tensor) -> Tensor:
        if self.norm == "batch":
            return self.batch_norm(psi.transpose(1, 2)).transpose(1, 2)
        if self.norm == "layer":
            return self.layer_norm(psi)
        batch, n, k = psi.shape
        covariance = torch.einsum("bni,bnj->ij", psi, psi) / (batch * n)
        old = self.average
        now = covariance.detach()
        self.average = now if old is None else 0.9 * old + 0.1 * now
        jitter = 1e-6 * covariance.diagonal().mean().detach() * torch.eye(k, dtype=psi.dtype)
        factor = torch.linalg.cholesky(covariance + jitter)
        return psi @ torch.linalg.inv(factor).transpose(-1, -2)

    @torch.no_grad()
    def copy_from(self, layer: OrthogonalLayer) -> None:
        """Take over the weights of a layer of the project's model."""
        self.attention.copy_from(layer.attention)  # pyright: ignore[reportCallIssue]
        for name in ("norm1", "norm2", "norm3", "mlp", "update"):
            getattr(self, name).load_state_dict(getattr(layer, name).state_dict())
        self.project.load_state_dict(layer.eigenfunctions.project.state_dict())
        self.eigenvalues.copy_(layer.eigenvalues)
        if self.value is not None:
            self.value.copy_(layer.value.weight.T)
        if self.norm != "orthogonal":
            norm = self.batch_norm if self.norm == "batch" else self.layer_norm
            norm.load_state_dict(layer.eigenfunctions.norm.state_dict())  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]


class PlainONO(nn.Module):
    """ONO on squares, with raw coordinates."""

    def __init__(
        self, attention: str = "nystrom", width: int = 128, depth: int = 10, heads: int = 8,
        k: int = 32, expansion: int = 2, landmarks: int = 256, norm: str = "orthogonal",
        value: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()

        def attend() -> nn.Module:
            if attention == "nystrom":
                return PlainNystromAttention(width, heads, landmarks)
            return PlainAttention(width, heads, attention)

        self.lift = nn.Sequential(
            nn.Linear(3, 2 * width), nn.GELU(), nn.Linear(2 * width, 2 * width)
        )
        self.layers = nn.ModuleList(
            PlainLayer(width, expansion * width, k, attend(), 1 if last else width, norm, value)
            for last in (False,) * (depth - 1) + (True,)
        )

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        u = torch.cat([x.expand(len(a), *x.shape), a], dim=-1).flatten(1, 2)
        g, f = self.lift(u).chunk(2, dim=-1)
        for layer in self.layers:
            g, f = layer(g, f)
        return f.view(a.shape)

    @torch.no_grad()
    def copy_from(self, model: ONO) -> None:
        """Take over the weights of a model of the project."""
        self.lift.load_state_dict(model.lift.state_dict())
        for plain, layer in zip(self.layers, model.layers, strict=True):
            plain.copy_from(layer)
