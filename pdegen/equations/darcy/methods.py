"""Declarations of the numerical methods for Darcy flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from pdegen.domains import CellGrid
from pdegen.equations.darcy.checks import DarcyClaims
from pdegen.schema import Count, Positive, Strict, Tolerance

if TYPE_CHECKING:  # solvers are imported only when they are built, since compilation takes a while
    from pdegen.equations.darcy.finite_element import FiniteElement
    from pdegen.equations.darcy.finite_volume import FiniteVolume
    from pdegen.equations.darcy.published import PublishedScheme

# Largest relative imbalance of power, times n, for u from a finer grid or finite elements. Observed
# were 0.5 for the phases 12 and 3, 2.7 for 1000 and 1, and 5 for a log-normal a of range exp(±20).
_REFINED = 10.0
_DIRECT = 1e-6  # relative residual after a direct solve of a matrix that may be indefinite


def _odd(factor: int) -> int:
    """An odd number."""  # `pdegen keys` prints this line
    if factor % 2 == 0:
        raise ValueError("a refinement must be odd, so that cell centres stay cell centres")
    return factor


Odd = Annotated[Count, AfterValidator(_odd)]


class FiniteVolumeMethod(Strict):
    """Finite volumes on the output cells or finer ones (`finite_volume.FiniteVolume`).

    Args:
        faces: Mean of the coefficients of two cells on their common face; the published data have
            "arithmetic" means.
        rtol: Largest relative residual; 1e-8 means about 1e-11 in the solution. [1]
        limit: Largest number of iterations; beyond it a direct solver takes over.
        refinement: Cells of the solver for each cell of the output, along each axis.
    """

    method: Literal["finite-volume"]
    faces: Literal["harmonic", "arithmetic"] = "harmonic"
    rtol: Annotated[Tolerance, Field(lt=1)] = 1e-8
    limit: Count = 300
    refinement: Odd = 1

    def build(self, n: int) -> FiniteVolume:
        from pdegen.equations.darcy.finite_volume import FiniteVolume

        return FiniteVolume(CellGrid(n), self.faces, self.rtol, self.limit)

    def claims(self, n: int) -> DarcyClaims:
        """The guaranteed properties of u on n x n cells.

        Without refinement, the discrete equations conserve power up to their residual. With
        refinement, arithmetic means on the finer faces define another coefficient, so power is not
        guaranteed.
        """
        harmonic, balance = self.faces == "harmonic", 2 * self.rtol
        if self.refinement > 1:
            balance = balance + _REFINED / n if harmonic else None
        return DarcyClaims(self.rtol, True, balance, harmonic)


class FiniteElementMethod(Strict):
    """Finite elements (dolfinx) on the output cells or finer ones (`finite_element.FiniteElement`).

    Args:
        element: Continuous elements of degree 1 or 2, on the cells (Q) or on their halves (P).
        linear: "cg", conjugate gradients with algebraic multigrid, or "cholesky", a direct solver.
        rtol: Largest relative residual. [1]
        limit: Largest number of iterations.
        ranks: MPI processes of the worker.
        mode: In "sample" each rank solves its own samples; in "domain" all ranks solve each sample.
        timeout: Largest time for a sample in a worker, set-up included. [s]
        refinement: Cells of the solver for each cell of the output, along each axis.
    """

    method: Literal["finite-element"]
    element: Literal["Q1", "P1", "Q2", "P2"] = "Q1"
    linear: Literal["cg", "cholesky"] = "cg"
    rtol: Annotated[Tolerance, Field(lt=1)] = 1e-9
    limit: Count = 200
    ranks: Count = 1
    mode: Literal["sample", "domain"] = "sample"
    timeout: Positive = 300.0
    refinement: Odd = 1

    def build(self, n: int) -> FiniteElement:
        from pdegen.equations.darcy.finite_element import FiniteElement

        settings = self.model_dump(exclude={"method", "refinement"})
        return FiniteElement(CellGrid(n), **settings)

    def claims(self, n: int) -> DarcyClaims:
        """The guaranteed properties of u on n x n cells.

        u may be 0 in a corner, because all nodes of a triangle there may lie on walls.
        """
        return DarcyClaims(self.rtol, False, 2 * self.rtol + _REFINED / n)


class PublishedMethod(Strict):
    """The scheme of the published data, with splines (`published.PublishedScheme`)."""

    method: Literal["published-splines"]

    refinement: ClassVar[int] = 1

    def build(self, n: int) -> PublishedScheme:
        from pdegen.equations.darcy.published import PublishedScheme

        return PublishedScheme(CellGrid(n))

    def claims(self, n: int) -> DarcyClaims:
        """The guaranteed properties of u: only the bound of the residual.

        In a tenth of 400 samples on 43 x 43 cells, u has the wrong sign somewhere. The balance of
        power is violated by up to a third.
        """
        return DarcyClaims(_DIRECT, None, None)
