"""Claims about an operator on every kind of domain that it declares.

A way is a kind of domain, with points that the samples share, or that differ by sample, or with
padding. No axis is as long as another.
"""

from __future__ import annotations

import torch
from torch import Tensor

from operators.base import Operator, check_domain, check_input
from operators.testing.checks import ContractError, close, refused, settled
from pdegen.domains import Box, Cloud, Curvilinear

# 16 or 12 sensors along each axis, as those of DeepONet in the tests, are among the points
BOXES = {"periodic": (32, 16), "cell": (36, 12), "nodal": (23, 12)}
CUBES = {"periodic": (12, 16, 14), "cell": (15, 12, 14), "nodal": (13, 12, 14)}
COUNTS = (40, 33, 17)  # points of the samples of a padded cloud
SHARED = [*BOXES, "curvilinear", "cloud"]
WAYS = [*SHARED, "curvilinear by sample", "cloud by sample", "cloud padded"]
DOMAINS = {
    **{kind: getattr(Box, kind)(4, 4) for kind in BOXES},
    "curvilinear": Curvilinear.of(Box.cell(4, 4).points),
    "cloud": Cloud.of(Box.cell(4, 4).points.reshape(16, 2)),
}


def kind_of(way: str) -> str:
    return way.split()[0]


def takes(model: Operator, way: str) -> bool:
    """Whether an operator declares that it takes such points; meshes have one or two axes."""
    return (
        kind_of(way) in model.domains
        and (model.dim < 3 or kind_of(way) != "curvilinear")
        and (model.points_by_sample or way in SHARED)
        and (model.masks or way != "cloud padded")
    )


def points_of(way: str, dim: int) -> Tensor:
    """Positions: (*grid, dim), or by sample (3, *grid, dim)."""
    torch.manual_seed(2)
    kind, samples = kind_of(way), () if way in SHARED else (3,)
    if kind == "cloud":
        return torch.rand(*samples, 40, dim, dtype=torch.float64)
    if kind in BOXES:
        shape = CUBES[kind] if dim == 3 else BOXES[kind][:dim]
        return torch.from_numpy(getattr(Box, kind)(*shape).points)
    x = torch.from_numpy(Box.cell(*(18, 12, 10)[:dim]).points)
    bend = 0.1 * torch.rand(*samples, *[1] * dim, dim, dtype=torch.float64)
    return x + bend * torch.sin(torch.pi * x).prod(-1, keepdim=True)


def padding(counts: tuple[int, ...], n: int) -> Tensor:
    """A mask of n points that is False after the given number of points of each sample."""
    return torch.arange(n) < torch.tensor(counts)[:, None]


def batch_equals_its_samples_and_padding_changes_nothing(model: Operator, way: str) -> None:
    """The values and gradients of a batch are those of its samples alone. A sample alone has points
    that a batch shares, and no padding."""
    dim, channels = model.dim, model.in_channels
    x, padded, by_sample = points_of(way, dim), way == "cloud padded", way not in SHARED
    batch = 3 if by_sample else 2
    grid = x.shape[int(by_sample) : -1]
    a = torch.randn(batch, *grid, channels, dtype=torch.float64)
    counts = COUNTS if padded else (a.shape[1],) * batch
    mask = padding(counts, a.shape[1]) if padded else None
    settled(model, a, x, None, mask, batches=2)

    def part(values: Tensor) -> list[Tensor]:  # of a batch, what is no padding
        return [one[:n] for one, n in zip(values, counts, strict=True)]

    def losses(values: list[Tensor]) -> Tensor:
        return torch.stack([one.square().sum() for one in values]).sum()

    with torch.set_grad_enabled(by_sample):
        u = model(a, x, None, mask)
        alone = [
            model(one[None], x[i][:n] if by_sample else x)[0]
            for i, (one, n) in enumerate(zip(part(a), counts, strict=True))
        ]
    if u.shape != (batch, *grid, model.out_channels):
        raise ContractError(f"u has shape {tuple(u.shape)} for a of shape {tuple(a.shape)}")
    for one, batched in zip(alone, part(u), strict=True):
        close(batched, one, 1e-8, 1e-9, f"{way}: a sample has other values in a batch than alone")
    if by_sample:
        of_batch, of_samples = (
            torch.autograd.grad(losses(v), list(model.parameters()), materialize_grads=True)
            for v in (part(u), alone)
        )
        for one, batched in zip(of_samples, of_batch, strict=True):
            close(batched, one, 1e-6, 1e-7, f"{way}: the gradient of a batch is not the sum")
    if padded:
        assert mask is not None
        noise = torch.randn(*mask.shape, channels + dim, dtype=torch.float64)
        other = torch.where(mask[..., None], torch.cat([a, x], -1), noise)
        again = model(other[..., :channels], other[..., channels:], None, mask)
        for one, batched in zip(part(again), part(u), strict=True):
            close(one, batched, 1e-12, 1e-12, f"{way}: values at padding change other values")


def other_domains_are_refused(model: Operator) -> None:
    """Domains, points and padding that are not declared raise ValueError in one line."""
    x = points_of("curvilinear by sample", model.dim)
    a = torch.zeros(3, *x.shape[1:-1], model.in_channels, dtype=torch.float64)
    for kind, domain in DOMAINS.items():
        if kind in model.domains:
            check_domain(model, domain)
        else:
            what, message = f"a {kind} domain", f" domains, not {kind} ones"
            refused(message, what, check_domain, model, domain)
    if not model.points_by_sample:
        what = "points that differ by sample"
        refused("needs points that all samples share", what, check_input, model, a, x)
    if not model.masks:
        what, mask = "a mask", torch.ones(a.shape[:-1], dtype=torch.bool)
        message = "needs the same number of points"
        refused(message, what, check_input, model, a, x[0], None, mask)


def permutes_with_the_points(model: Operator) -> None:
    """A permutation of the points of a cloud permutes the values."""
    x = points_of("cloud", model.dim)
    a = torch.randn(2, 40, model.in_channels).double()
    settled(model, a, x, batches=2)
    order = torch.randperm(40)
    u, expected = model(a[:, order], x[order]), model(a, x)[:, order]
    close(u, expected, 1e-8, 1e-9, "values on a cloud depend on the order of its points")


def samples_have_points_of_their_own(model: Operator) -> None:
    """Each sample may have its own points y. Padding of its input does not change the values."""
    x = points_of("cloud by sample", model.dim)
    a, y = torch.randn(3, 40, model.in_channels).double(), torch.rand(3, 7, model.dim).double()
    counts = COUNTS if model.masks else (40,) * 3
    mask = padding(counts, 40) if model.masks else None
    settled(model, a, x, y, mask, batches=2)
    u = model(a, x, y, mask)
    alone = [model(a[i : i + 1, :n], x[i, :n], y[i])[0] for i, n in enumerate(counts)]
    close(u, torch.stack(alone), 1e-8, 1e-9, "values at points y differ in a batch")
    if (shape := model(a, x[0], y[0]).shape) != (3, 7, model.out_channels):
        raise ContractError(f"values at 7 points y have the shape {tuple(shape)}")
