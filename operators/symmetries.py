"""Random symmetries of solution maps, for data augmentation."""

import torch
from jaxtyping import Float
from torch import Tensor

from operators.transforms import axes_of
from pdegen.domains import Box, Domain


class CircleSymmetries:
    """Random symmetries of equations on the circle, drawn separately for each sample of a batch.

    The symmetries are shifts by grid points, u(x, t) -> u(x - s, t), and the odd reflection,
    u(x, t) -> -u(-x, t). Both map solutions to solutions, for example those of Burgers' equation.
    They do not change the distribution of a homogeneous symmetric random field. The same symmetry
    is applied to the input and the target of a sample.
    """

    def __init__(self, shift: bool = True, reflection: bool = True) -> None:
        self.shift, self.reflection = shift, reflection

    @property
    def names(self) -> set[str]:
        """Names of the symmetries in stores (`pdegen.store.format.Physics`)."""
        drawn = {"shift": self.shift, "odd-reflection": self.reflection}
        return {name for name, is_drawn in drawn.items() if is_drawn}

    def check(self, domain: Domain) -> None:
        """Raise ValueError if the domain is not a circle."""
        if not isinstance(domain, Box) or domain.kinds != ("periodic",):
            raise ValueError(
                f"shift and reflection need one periodic axis, the data have {domain.kind} axes "
                f"{' x '.join(domain.kinds)}"
            )

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
        if not isinstance(domain, Box) or domain.kinds != ("periodic", "periodic"):
            kinds = f" with axes {' x '.join(domain.kinds)}" if isinstance(domain, Box) else ""
            raise ValueError(
                f"diagonal needs two periodic axes, the data are on a {domain.kind}{kinds}"
            )
        first, second = axes_of(x)
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


class SquareSymmetries:
    """One of the 8 symmetries of the square, drawn at random for each sample of a batch.

    Reflections and rotations map solutions of -div(a grad u) = 1 with u = 0 on the boundary to
    solutions. They do not change the distribution of the Gaussian fields on the square. The same
    symmetry is applied to the input and the target of a sample. The grids of inputs and targets may
    differ, but each grid must be symmetric.
    """

    names = frozenset({"square"})

    def check(self, x: Float[Tensor, "n1 n2 2"]) -> None:
        """Raise ValueError if a grid does not have the symmetries of the square."""
        first, second = axes_of(x)
        if first.shape != second.shape or not torch.equal(first, second):
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
