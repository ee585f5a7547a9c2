r"""Normalisation of functions, each channel over points: of all samples, or of each."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Function = Float[Tensor, "batch *grid c"]
Mask = Bool[Tensor, "batch *grid"]


class BatchNorm(nn.BatchNorm1d):
    """v = γ (u - E u) / √(Var u + 1e-5) + β with moments over batch and grid, and none of padding.

    Evaluation takes averages of the moments of training, so that a sample does not depend on its
    batch.

    >>> BatchNorm(3)(torch.randn(2, 8, 8, 3)).shape
    torch.Size([2, 8, 8, 3])
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def forward(self, input: Function, mask: Mask | None = None) -> Function:
        if mask is None or not self.training:
            return super().forward(input.flatten(0, -2)).view_as(input)
        u, real, n = input.to(self.weight.dtype), mask[..., None], mask.sum()
        mean = u.masked_fill(~real, 0).flatten(0, -2).sum(0) / n
        centred = u - mean
        variance = centred.masked_fill(~real, 0).square().flatten(0, -2).sum(0) / n
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * n / (n - 1), self.momentum)
            self.num_batches_tracked.add_(1)
        v = centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias
        return v.to(input.dtype)


class InstanceNorm(nn.Module):
    """Mean 0 and variance 1 over the grid, of each channel of each sample. No parameters."""

    def forward(self, u: Function, mask: Mask | None = None) -> Function:
        grid = tuple(range(1, u.ndim - 1))
        if mask is None:
            variance, mean = torch.var_mean(u, dim=grid, correction=0, keepdim=True)
            return (u - mean) * torch.rsqrt(variance + 1e-5)
        padding, n = ~mask[..., None], mask[..., None].sum(grid, keepdim=True)
        centred = u - u.masked_fill(padding, 0).sum(grid, keepdim=True) / n
        variance = centred.masked_fill(padding, 0).square().sum(grid, keepdim=True) / n
        return centred * torch.rsqrt(variance + 1e-5)
