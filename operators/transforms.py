"""What happens to functions before and after the operator: normalisation, augmentation."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Operator

Function = Float[Tensor, "batch *grid c"]


class Normalizer(nn.Module):
    """v -> (v - mean)/std for each channel, and back. Its numbers are saved with the model.

    Args:
        mean, std: One value for each channel; std > 0.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Float[Tensor, " c"], std: Float[Tensor, " c"]) -> None:
        super().__init__()
        if not bool((std > 0).all()):
            raise ValueError(f"a normaliser needs positive deviations, got {std.tolist()}")
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @classmethod
    def identity(cls, channels: int) -> Normalizer:
        return cls(torch.zeros(channels), torch.ones(channels))

    @classmethod
    def of(cls, values: Function) -> Normalizer:
        """Mean and deviation over samples and points, in float64."""
        flat = values.flatten(0, -2).double()
        return cls(flat.mean(0).float(), flat.std(0, correction=0).float())

    def forward(self, v: Function) -> Function:
        return (v - self.mean) / self.std

    def inverse(self, v: Function) -> Function:
        """From normalised to physical values."""
        return v * self.std + self.mean


class Predictor(nn.Module):
    """An operator between its normalisers: physical values in, physical values out."""

    def __init__(self, operator: Operator, input: Normalizer, target: Normalizer) -> None:
        super().__init__()
        self.operator, self.input, self.target = operator, input, target

    def forward(
        self, a: Float[Tensor, "batch *grid c_in"], x: Float[Tensor, "*grid dim"]
    ) -> Float[Tensor, "batch *grid c_out"]:
        return self.target.inverse(self.operator(self.input(a), x))


class BurgersSymmetries:
    """A random symmetry of Burgers' equation on the circle, for each sample of a batch.

    Shifts by grid points, u(x, t) -> u(x - s, t), and the reflection u(x, t) -> -u(-x, t) map
    solutions to solutions, and leave the law of a homogeneous symmetric random field unchanged.
    The same one acts on input and target.

    Args:
        shift, reflection: Which symmetries to draw from.
    """

    def __init__(self, shift: bool = True, reflection: bool = True) -> None:
        self.shift, self.reflection = shift, reflection

    def __call__(
        self, a: Float[Tensor, "batch n c_in"], u: Float[Tensor, "batch n c_out"]
    ) -> tuple[Float[Tensor, "batch n c_in"], Float[Tensor, "batch n c_out"]]:
        batch, n = a.shape[:2]
        point = torch.arange(n, device=a.device).expand(batch, n)
        sign = torch.ones(batch, 1, 1, device=a.device, dtype=a.dtype)
        if self.reflection:
            mirrored = torch.rand(batch, 1, device=a.device) < 0.5
            point = torch.where(mirrored, -point, point)
            sign = torch.where(mirrored[..., None], -sign, sign)
        if self.shift:
            point = point + torch.randint(n, (batch, 1), device=a.device)
        sample = torch.arange(batch, device=a.device)[:, None]
        return sign * a[sample, point % n], sign * u[sample, point % n]
