"""Fluxes that balance the source in every cell: what makes an error bound a guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pdegen.equations.darcy.operator import Diffusion, outflow
from pdegen.equations.darcy.poisson import Poisson

_ROUNDS = 2  # corrections: the first leaves the rounding of the flux before it

Cells = Float[np.ndarray, "batch n n"]


@dataclass(frozen=True)
class Flux:
    """q in H(div) of the lowest order of Raviart and Thomas: on each cell q_x is linear in x and
    constant in y, and q_y the other way round, so div q is constant on each cell."""

    # what flows through the faces across x, h q_x, shape (batch, n+1, n)
    x: Float[np.ndarray, "batch n1 n"]
    y: Float[np.ndarray, "batch n n1"]  # through those across y, shape (batch, n, n+1)

    @cached_property
    def outflow(self) -> Cells:
        """∫ div q over each cell."""
        return outflow(self.x, self.y)

    def energy(self, a: Cells) -> Float[np.ndarray, " batch"]:
        """∫ |q|²/a of each sample."""
        west, east, south, north = self.x[:, :-1], self.x[:, 1:], self.y[..., :-1], self.y[..., 1:]
        squares = west**2 + west * east + east**2 + south**2 + south * north + north**2
        return np.sum(squares / (3 * a), axis=(1, 2))


def equilibrated(a: Cells, w: Cells, f: Float[np.ndarray, "..."] | float, poisson: Poisson) -> Flux:
    """A flux near -a ∇u with div q = f up to rounding, from any values w at the centres.

    The fluxes of the finite volumes of w leave a residual r in the cells. It is balanced by the
    flux -∇φ with Lφ = r, one fast Poisson solve, however large it is.
    """
    operator, laplacian = Diffusion(a, "harmonic"), Diffusion(np.ones_like(a), "harmonic")
    b, flux = operator.right_hand_side(f), Flux(*operator.fluxes(w))
    for _ in range(_ROUNDS):
        residual = b - flux.outflow
        x, y = laplacian.fluxes(np.stack([poisson(r) for r in residual]))
        flux = Flux(flux.x + x, flux.y + y)
    return flux
