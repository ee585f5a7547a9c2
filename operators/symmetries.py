"""Symmetries of solution maps: drawn at random for data augmentation, or averaged over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from pdegen.domains import Box, Domain


class TorusSymmetries:
    """Random symmetries of equations on a torus, drawn separately for each sample of a batch.

    The symmetries are shifts by grid points along each axis, u(x, t) -> u(x - s, t), and the odd
    reflection, u(x, t) -> -u(-x, t). Both map solutions to solutions, for example those of Burgers'
    equation on the circle. They do not change the distribution of a homogeneous symmetric random
    field. The same symmetry is applied to the input and the target of a sample.
    """

    def __init__(self, shift: bool = True, reflection: bool = True) -> None:
        self.shift, self.reflection = shift, reflection
        drawn = {"shift": shift, "odd-reflection": reflection}  # by their names in stores
        self.names = frozenset(name for name, is_drawn in drawn.items() if is_drawn)

    def check(self, domain: Domain) -> None:
        """Raise ValueError if the domain is not a torus."""
        if not isinstance(domain, Box) or set(domain.kinds) != {"periodic"}:
            raise ValueError(
                f"shift and reflection need periodic axes, the data have {domain.kind} axes "
                f"{' x '.join(domain.kinds)}"
            )

    def __call__(
        self, a: Float[Tensor, "batch *grid c_in"], u: Float[Tensor, "batch *grid c_out"]
    ) -> tuple[Float[Tensor, "batch *grid c_in"], Float[Tensor, "batch *grid c_out"]]:
        batch, grid = a.shape[0], a.shape[1:-1]
        mirrored = torch.zeros(batch, 1, dtype=torch.bool, device=a.device)
        if self.reflection:
            mirrored = torch.rand(batch, 1, device=a.device) < 0.5
        indices = [torch.arange(batch, device=a.device).view(-1, *[1] * len(grid))]
        for axis, n in enumerate(grid):
            point = torch.arange(n, device=a.device).expand(batch, n)
            point = torch.where(mirrored, -point, point)
            if self.shift:
                point = point + torch.randint(n, (batch, 1), device=a.device)
            shape = [n if k == axis else 1 for k in range(len(grid))]
            indices.append((point % n).view(batch, *shape))
        sign = torch.where(mirrored, -1.0, 1.0).to(a.dtype).view(batch, *[1] * (a.ndim - 1))
        return sign * a[tuple(indices)], sign * u[tuple(indices)]


class DiagonalShifts:
    """Random shifts of the torus along (1, -1), drawn separately for each sample of a batch.

    A shift by s grid points maps w(x, y) to w(x + s, y - s). It maps solutions of the vorticity
    equation to solutions, because its force depends on x + y only (`pdegen.equations.vorticity`).
    It does not change the distribution of a homogeneous random field. The same shift is applied to
    the input and the target of a sample.
    """

    names = frozenset({"diagonal-shift"})

    def check(self, domain: Domain, x: Float[Tensor, "n1 n2 2"]) -> None:
        """Raise ValueError if the domain is not a torus with the same points along both axes."""
        _check_torus(domain, "diagonal")
        first, second = x[:, 0, 0], x[0, :, 1]
        if first.shape != second.shape or not torch.allclose(first, second):
            raise ValueError("diagonal needs the same points along both axes")

    def __call__(
        self, a: Float[Tensor, "batch n n c_in"], u: Float[Tensor, "batch n n c_out"]
    ) -> tuple[Float[Tensor, "batch n n c_in"], Float[Tensor, "batch n n c_out"]]:
        batch, n = a.shape[:2]
        shift = torch.randint(n, (batch, 1, 1), device=a.device)
        point = torch.arange(n, device=a.device)
        sample = torch.arange(batch, device=a.device)[:, None, None]
        row, column = (point[:, None] + shift) % n, (point - shift) % n
        return a[sample, row, column], u[sample, row, column]


class KolmogorovSymmetries:
    """Random symmetries of Kolmogorov flows, drawn separately for each sample of a batch.

    The force of the vorticity w on a torus of height L is -κA cos κy with κ = 2πn/L. Shifts along x
    by grid points, and along y by multiples of L/n, map solutions to solutions. So do w(x, y) ->
    -w(-x, y + L/2n) and w(x, y) -> w(-x, -y).

    References: Chandler and Kerswell, J. Fluid Mech. 722 (2013), section 2.

    Args:
        wave: Wave number n of the force.
        reflection: Whether the last two are drawn too, not only shifts.
    """

    def __init__(self, wave: int, reflection: bool = True) -> None:
        self.wave, self.reflection = wave, reflection
        drawn = ("shift", "reflection") if reflection else ("shift",)
        self.names = frozenset(f"wave-{wave}-{name}" for name in drawn)

    def check(self, domain: Domain, x: Float[Tensor, "n1 n2 2"]) -> None:
        """Raise ValueError if the shifts do not map points of a torus to points."""
        _check_torus(domain, "wave")
        factor, m = self.wave * (1 + self.reflection), x.shape[1]
        if m % factor:
            raise ValueError(
                f"wave = {self.wave} needs a multiple of {factor} points along y, got {m}"
            )

    def __call__(
        self, a: Float[Tensor, "batch n m c_in"], u: Float[Tensor, "batch n m c_out"]
    ) -> tuple[Float[Tensor, "batch n m c_in"], Float[Tensor, "batch n m c_out"]]:
        batch, n, m = a.shape[:3]
        half_waves, turned, shift = (
            torch.randint(count, (batch, 1, 1), device=a.device) for count in (2 * self.wave, 2, n)
        )
        if not self.reflection:
            half_waves, turned = 2 * half_waves, 0 * turned
        sign, turn = 1 - 2 * (half_waves % 2), 1 - 2 * turned
        row = sign * turn * torch.arange(n, device=a.device)[:, None] + shift
        column = turn * torch.arange(m, device=a.device) + half_waves * m // (2 * self.wave)
        place = (torch.arange(batch, device=a.device)[:, None, None], row % n, column % m)
        return sign[..., None] * a[place], sign[..., None] * u[place]


def _check_torus(domain: Domain, key: str) -> None:
    """Raise ValueError if the domain is not a torus of two axes, which `key` needs."""
    if not isinstance(domain, Box) or domain.kinds != ("periodic", "periodic"):
        kinds = f" with axes {' x '.join(domain.kinds)}" if isinstance(domain, Box) else ""
        raise ValueError(f"{key} needs two periodic axes, the data are on a {domain.kind}{kinds}")


class SquareSymmetries:
    """One of the 8 symmetries of the square, drawn at random for each sample of a batch.

    Reflections and rotations map solutions of -div(a grad u) = 1 with u = 0 on the boundary to
    solutions. They do not change the distribution of the Gaussian fields on the square. The same
    symmetry is applied to the input and the target of a sample. The grids of inputs and targets may
    differ, but each grid must be symmetric.

    Args:
        mean: Whether predictions of the trained operator are means over the images of the input,
            as computed by `square_mean`.
    """

    names = frozenset({"square"})

    def __init__(self, mean: bool = False) -> None:
        self.mean = mean

    def check(self, x: Float[Tensor, "n1 n2 2"]) -> None:
        """Raise ValueError if a grid, scaled to (0, 1)², lacks the symmetries of the square."""
        first, second = x[:, 0, 0], x[0, :, 1]
        if first.shape != second.shape or not torch.allclose(first, second, atol=1e-6):
            raise ValueError("symmetries of the square need the same points along both axes")
        if not torch.allclose(first, 1 - first.flip(0), atol=1e-6):
            raise ValueError("symmetries of the square need points symmetric in (0, 1)")

    def __call__(
        self, a: Float[Tensor, "batch n n c_in"], u: Float[Tensor, "batch m m c_out"]
    ) -> tuple[Float[Tensor, "batch n n c_in"], Float[Tensor, "batch m m c_out"]]:
        drawn = torch.rand(3, len(a), 1, 1, 1, device=a.device) < 0.5

        def transformed(v: Tensor) -> Tensor:
            v = torch.where(drawn[0], v.flip(1), v)
            v = torch.where(drawn[1], v.flip(2), v)
            return torch.where(drawn[2], v.transpose(1, 2), v)

        return transformed(a), transformed(u)


def check_mean(x: Tensor | None, y: Tensor | None) -> None:
    """Raise ValueError if `square_mean` cannot be taken for inputs at x and outputs at y.

    Args:
        x: Points of the inputs that all samples share; None if they differ by sample.
        y: Points of the outputs that all samples share; None if they are those of the inputs.
    """
    for points in (x, x if y is None else y):
        if points is None or points.ndim != 3:
            raise ValueError("a mean over the symmetries of the square needs points of a grid")
        SquareSymmetries().check(points)


def square_mean(
    apply: Callable[[Tensor], Tensor], a: Float[Tensor, "batch n n c_in"]
) -> Float[Tensor, "batch m m c_out"]:
    """The mean of g⁻¹ G(g a) over the 8 symmetries g of the square.

    The map from a to the mean has these symmetries, whatever the map G is. If the true map has
    them too, the mean squared error of the mean is at most that of G on the images of a.

    Args:
        apply: The map G.
    """
    total = torch.zeros((), dtype=a.dtype, device=a.device)
    for swapped, *flipped in product((False, True), repeat=3):
        axes = [axis for axis, is_flipped in enumerate(flipped, 1) if is_flipped]
        image = a.flip(axes).transpose(1, 2) if swapped else a.flip(axes)
        u = apply(image)
        total = total + (u.transpose(1, 2) if swapped else u).flip(axes)
    return total / 8
