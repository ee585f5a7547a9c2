"""What is known of u on the boundary of its domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from pdegen.domains import Box, Cloud, Curvilinear, Domain


@dataclass(frozen=True)
class Boundary:
    """Values of u that are known on the boundary of the domain, at whatever resolution.

    Args:
        values: Of each channel; None where nothing is known.
        ends: For each axis of a box or a structured mesh, whether its first and last points lie on
            the boundary.
        edge: Which points of a cloud lie on it, in place of `ends`.

    >>> Boundary((0.0,), (True,)).points((4,))
    tensor([ True, False, False,  True])
    """

    values: tuple[float | None, ...]
    ends: tuple[bool, ...] = ()
    edge: Bool[Tensor, " points"] | None = None

    @classmethod
    def of(cls, domain: Domain, values: Sequence[float | None]) -> Boundary | None:
        """The values on a domain; None where nothing is known, or it has no such points.

        The outermost points of a cell grid lie half a cell inside, not on the boundary.
        """
        found = cls(tuple(values))
        if isinstance(domain, Box):
            found = replace(found, ends=tuple(bool(grid.boundary.any()) for grid in domain.grids))
        elif isinstance(domain, Curvilinear):
            closed = domain.closed or (False,) * domain.dim
            found = replace(found, ends=tuple(not one for one in closed))
        elif isinstance(domain, Cloud) and domain.edge is not None:
            found = replace(found, edge=torch.from_numpy(domain.edge))
        somewhere = any(found.ends) or (found.edge is not None and bool(found.edge.any()))
        return found if somewhere and any(v is not None for v in values) else None

    def description(self) -> dict[str, Any]:
        edge = None if self.edge is None else [len(self.edge), *self.edge.nonzero()[:, 0].tolist()]
        return {"values": list(self.values), "ends": list(self.ends), "edge": edge}

    @classmethod
    def described(cls, content: Mapping[str, Any]) -> Boundary:
        """What `description` has said."""
        edge = None
        if content["edge"] is not None:
            edge = torch.zeros(content["edge"][0], dtype=torch.bool)
            edge[content["edge"][1:]] = True
        values = tuple(None if v is None else float(v) for v in content["values"])
        return cls(values, tuple(map(bool, content["ends"])), edge)

    def points(self, grid: tuple[int, ...]) -> Bool[Tensor, " *grid"]:
        """Which points of a grid of this shape lie on the boundary. Raises ValueError if they are
        not known for such a grid."""
        if self.edge is not None:
            if self.edge.shape != grid:
                raise ValueError(f"the boundary is known of {len(self.edge)} points, not of {grid}")
            return self.edge
        found = torch.zeros(grid, dtype=torch.bool)
        for axis in (axis for axis, ends in enumerate(self.ends) if ends):
            found.movedim(axis, 0)[[0, -1]] = True
        return found

    def on(self, grid: tuple[int, ...], like: Tensor) -> tuple[Tensor, Tensor | None]:
        """What u is multiplied by, and what is added then where a value is not 0."""
        known = self.points(grid)[..., None] & torch.tensor([v is not None for v in self.values])
        added = known * torch.tensor([v or 0.0 for v in self.values])
        return (~known).to(like), added.to(like) if any(self.values) else None
