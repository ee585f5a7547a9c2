"""Check of what a store without a recipe declares about its values: two phases, and values on the
boundary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from pdegen.domains import Domain
from pdegen.store.format import Physics

_TOLERANCE = 1e-3  # of the boundary values, relative to the largest value of the sample


def contradictions(
    physics: Physics, domain: Domain | None, values: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, int, str]]:
    """Yield the variable, the row and a description of values that contradict the declared physics,
    for the first such row of each variable.

    Args:
        physics: The declared facts.
        domain: The domain of the variables. Only nodal grids, and clouds with a known edge, have
            points on the boundary. None if it is not known.
        values: The values of samples by name, of shape (rows, ..., *axes of the domain). Variables
            that are not declared, or are not functions on the domain, are not checked.
    """
    for name, phases in physics.phases.items():
        if name in values:
            u = values[name].reshape(len(values[name]), -1)
            low, high = (np.isclose(u, phase, rtol=1e-6) for phase in phases)
            wrong = np.logical_not(low | high)
            for row in np.flatnonzero(wrong.any(axis=1))[:1]:
                found = u[row, wrong[row].argmax()]
                yield name, int(row), f"has the value {found:g}, declared are {phases}"
    for name, expected in physics.boundary.items():
        u = values.get(name)
        if domain is None or u is None or u.shape[u.ndim - len(domain.shape) :] != domain.shape:
            continue
        edge = np.abs(u[..., domain.boundary] - expected).reshape(len(u), -1).max(1, initial=0)
        largest = np.abs(u).reshape(len(u), -1).max(1, initial=0)
        for row in np.flatnonzero(edge > _TOLERANCE * largest)[:1]:
            distance = f"up to {edge[row]:.3g} away from {expected:g}"
            yield name, int(row), f"is {distance}, its declared value on the boundary"
