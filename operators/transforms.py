"""What happens to functions before and after the operator: normalisation, augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Operator

Function = Float[Tensor, "batch *grid c"]
Blocks = Iterable[Float[Tensor, "_ *grid c"]]  # of functions, as many in each as it likes

_PART = 2**20  # numbers of a block that are copied to float64 at a time


class Normalizer(nn.Module):
    """v -> (v - mean)/std, and back. Its numbers are saved with the model.

    One value for each channel, or for each point and channel. The latter have the coordinates of
    their points with them, so that on another grid they are interpolated linearly.

    Args:
        mean, std: Shape (c,) or (*grid, c); std > 0.
        axes: Coordinates along each axis of the grid; none for one value for each channel.

    Raises:
        ValueError: If a deviation is not positive, or they are not of one kind.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Float[Tensor, "*grid c"],
        std: Float[Tensor, "*grid c"],
        axes: Sequence[Float[Tensor, " n"]] = (),
    ) -> None:
        super().__init__()
        kinds = {(v.dtype, tuple(v.shape)) for v in (mean, std)}
        if kinds != {(torch.float32, (*map(len, axes), *mean.shape[-1:]))}:
            raise ValueError(
                f"a normaliser is of float32, on its axes {[len(axis) for axis in axes]}, got "
                f"{', '.join(f'{dtype} {shape}' for dtype, shape in sorted(kinds, key=str))}"
            )
        if not bool((std > 0).all()):
            raise ValueError(f"a normaliser needs positive deviations, got {float(std.min()):g}")
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        for number, axis in enumerate(axes):
            self.register_buffer(f"axis{number}", axis.contiguous())

    @classmethod
    def identity(cls, channels: int) -> Normalizer:
        return cls(torch.zeros(channels), torch.ones(channels))

    @classmethod
    def of(cls, values: Function | Blocks) -> Normalizer:
        """Mean and deviation of each channel over samples and points, in float64.

        Args:
            values: Training samples, all or in blocks, which are read once.
        """
        if isinstance(values, Tensor):
            flat = values.flatten(0, -2).double()
            return cls(flat.mean(0).float(), flat.std(0, correction=0).float())
        mean, std = _running_moments(block.flatten(0, -2) for block in values)
        return cls(mean.float(), std.float())

    @classmethod
    def pointwise(
        cls,
        values: Function | Blocks,
        x: Float[Tensor, "*grid dim"],
        eps: float | None = None,
    ) -> Normalizer:
        """Mean and deviation over the samples at each point, in float64.

        Args:
            values: Training samples, all or in blocks, which are read once.
            x: Their coordinates.
            eps: Added to the deviations, which may be 0 at some points. By default, for each
                channel, a thousandth of their root mean square, so that no unit of measurement
                matters; the published code has 1e-5, which for the pressure of Darcy flow is a
                third of the deviation next to a wall.
        """
        found = _moments(values) if isinstance(values, Tensor) else _running_moments(values)
        mean, std = (v.to(x.device) for v in found)
        added = 1e-3 * std.flatten(0, -2).square().mean(0).sqrt() if eps is None else eps
        return cls(mean.float(), (std + added).float(), _axes(x))

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], name: str) -> Normalizer:
        """The normaliser whose tensors `name.mean`, ... a state dictionary holds."""
        axes = [state[key] for key in sorted(state) if key.startswith(f"{name}.axis")]
        return cls(state[f"{name}.mean"], state[f"{name}.std"], axes)

    def at(self, x: Float[Tensor, "*grid dim"]) -> tuple[Tensor, Tensor]:
        """Mean and deviation at the points x, or of each channel."""
        return self._at(self.mean, x), self._at(self.std, x)

    def forward(self, v: Function, x: Float[Tensor, "*grid dim"]) -> Function:
        """From physical to normalised values at the points x."""
        mean, std = self.at(x)
        return (v - mean) / std

    def inverse(self, v: Function, x: Float[Tensor, "*grid dim"]) -> Function:
        """From normalised to physical values at the points x."""
        mean, std = self.at(x)
        return v * std + mean

    def _at(self, values: Tensor, x: Tensor) -> Tensor:
        if values.ndim == 1:
            return values
        for number, axis in enumerate(_axes(x)):
            own: Tensor = getattr(self, f"axis{number}")
            if axis.shape != own.shape or not torch.equal(axis, own):
                weights = _linear_interpolation(own, axis)
                values = (values.movedim(number, -1) @ weights.T).movedim(-1, number)
        return values


def _moments(values: Function) -> tuple[Tensor, Tensor]:
    """Mean and deviation over samples in float64, without a copy of all samples in float64."""
    mean = torch.stack([part.double().sum(0) for part in values.split(64)]).sum(0) / len(values)
    squares = [(part.double() - mean).square().sum(0) for part in values.split(64)]
    return mean, (torch.stack(squares).sum(0) / len(values)).sqrt()


def _running_moments(blocks: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and deviation over the first axis of all blocks in one pass, in float64.

    References: Chan, Golub and LeVeque, Algorithms for computing the sample variance, The American
        Statistician 37 (1983).
    """
    count, mean, squares = 0, *torch.zeros(2, dtype=torch.float64)
    for block in blocks:
        for part in block.split(max(1, _PART // block[0].numel())):
            values = part.double()
            own = values.mean(0)
            change, total = own - mean, count + len(values)
            mean = mean + change * (len(values) / total)
            squares = squares + (values - own).square().sum(0) + (
                change.square() * (count * len(values) / total)
            )  # fmt: skip
            count = total
    return mean, (squares / count).sqrt()


def _axes(x: Float[Tensor, "*grid dim"]) -> list[Tensor]:
    """The coordinates along each axis of a product grid."""
    dim = x.shape[-1]
    lines = (x[tuple(slice(None) if i == d else 0 for i in range(dim))] for d in range(dim))
    return [line[:, d].contiguous() for d, line in enumerate(lines)]


def _linear_interpolation(
    own: Float[Tensor, " n"], other: Float[Tensor, " m"]
) -> Float[Tensor, "m n"]:
    """Weights from the points `own` to `other`; beyond the ends, the values there."""
    right = torch.searchsorted(own, other).clamp(1, len(own) - 1)
    share = ((other - own[right - 1]) / (own[right] - own[right - 1])).clamp(0, 1)
    weights = torch.zeros(len(other), len(own), dtype=own.dtype, device=own.device)
    weights.scatter_(1, (right - 1)[:, None], (1 - share)[:, None])
    return weights.scatter_add_(1, right[:, None], share[:, None])


class Predictor(nn.Module):
    """An operator between its normalisers: physical values in, physical values out.

    Args:
        operator: The operator, on normalised values.
        input, target: Normalisers of a and of u.
        vanishes: Set the outermost points to 0: for u = 0 on the boundary of a nodal grid. The
            outermost points of a cell grid lie half a cell inside, where u is not 0.
    """

    def __init__(
        self, operator: Operator, input: Normalizer, target: Normalizer, vanishes: bool = False
    ) -> None:
        super().__init__()
        self.operator, self.input, self.target, self.vanishes = operator, input, target, vanishes

    def forward(
        self,
        a: Float[Tensor, "batch *grid c_in"],
        x: Float[Tensor, "*grid dim"],
        y: Float[Tensor, "*target_grid dim"] | None = None,
    ) -> Float[Tensor, "batch *target_grid c_out"]:
        return self.on(x, y)(a)

    def on(
        self, x: Float[Tensor, "*grid dim"], y: Float[Tensor, "*target_grid dim"] | None = None
    ) -> Callable[[Tensor], Tensor]:
        """a -> u(y) for inputs at the points x; what depends on the points alone is found once."""
        mean, std = self.input.at(x)
        target_mean, target_std = self.target.at(x if y is None else y)

        def predicted(a: Tensor) -> Tensor:
            u = self.operator((a - mean) / std, x, y) * target_std + target_mean
            return _zero_at_the_ends(u) if self.vanishes else u

        return predicted


def _zero_at_the_ends(u: Function) -> Function:
    for axis in range(1, u.ndim - 1):
        inside = torch.ones(u.shape[axis], dtype=u.dtype, device=u.device)
        inside[:1].zero_()  # an assignment of 0 would be copied from the processor
        inside[-1:].zero_()
        u = u * inside.reshape(-1, *[1] * (u.ndim - 1 - axis))
    return u


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


class SquareSymmetries:
    """A random one of the 8 symmetries of the square, for each sample of a batch.

    Reflections and rotations map solutions of -div(a grad u) = 1 with u = 0 on the boundary to
    solutions, and leave the law of the Gaussian fields on the square unchanged. The same one acts
    on input and target, which may lie on different grids, if these are symmetric.
    """

    def check(self, x: Float[Tensor, "n1 n2 2"]) -> None:
        """Raise ValueError where a grid does not have the symmetries of the square."""
        first, second = _axes(x)
        if first.shape != second.shape or not torch.equal(first, second):
            raise ValueError("symmetries of the square need the same points along both axes")
        if not torch.allclose(first, 1 - first.flip(0), atol=1e-6):
            raise ValueError("symmetries of the square need points that lie symmetric in (0, 1)")

    def __call__(
        self, a: Float[Tensor, "batch n n c_in"], u: Float[Tensor, "batch m m c_out"]
    ) -> tuple[Float[Tensor, "batch n n c_in"], Float[Tensor, "batch m m c_out"]]:
        chosen = torch.rand(3, len(a), 1, 1, 1, device=a.device) < 0.5

        def moved(v: Tensor) -> Tensor:
            v = torch.where(chosen[0], v.flip(1), v)
            v = torch.where(chosen[1], v.flip(2), v)
            return torch.where(chosen[2], v.transpose(1, 2), v)

        return moved(a), moved(u)
