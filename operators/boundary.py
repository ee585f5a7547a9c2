"""Known values of u on the boundary of its domain."""

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
    """Known values of u on the boundary of the domain, at any resolution.

    Args:
        values: Boundary value of each channel; None if the value is unknown.
        ends: Whether the first and last points along each axis of a box or a structured mesh lie on
            the boundary.
        edge: Mask of the boundary points of a cloud; replaces `ends`.

    >>> Boundary((0.0,), (True,)).points((4,))
    tensor([ True, False, False,  True])
    """

    values: tuple[float | None, ...]
    ends: tuple[bool, ...] = ()
    edge: Bool[Tensor, " points"] | None = None

    @classmethod
    def of(cls, domain: Domain, values: Sequence[float | None]) -> Boundary | None:
        """The boundary values on a domain.

        The result is None if no value is known or no point lies on the boundary. The outermost
        points of a cell grid, for example, lie half a cell inside the domain.
        """
        boundary = cls(tuple(values))
        if isinstance(domain, Box):
            boundary = replace(
                boundary, ends=tuple(bool(grid.boundary.any()) for grid in domain.grids)
            )
        elif isinstance(domain, Curvilinear):
            closed = domain.closed or (False,) * domain.dim
            boundary = replace(boundary, ends=tuple(not is_closed for is_closed in closed))
        elif isinstance(domain, Cloud) and domain.edge is not None:
            boundary = replace(boundary, edge=torch.from_numpy(domain.edge))
        edge = boundary.edge
        exists = any(boundary.ends) or (edge is not None and bool(edge.any()))
        return boundary if exists and any(v is not None for v in values) else None

    def description(self) -> dict[str, Any]:
        """The boundary values as JSON, for a checkpoint."""
        edge = None if self.edge is None else [len(self.edge), *self.edge.nonzero()[:, 0].tolist()]
        return {"values": list(self.values), "ends": list(self.ends), "edge": edge}

    @classmethod
    def described(cls, content: Mapping[str, Any]) -> Boundary:
        """Create boundary values from their `description`."""
        edge = None
        if content["edge"] is not None:
            edge = torch.zeros(content["edge"][0], dtype=torch.bool)
            edge[content["edge"][1:]] = True
        values = tuple(None if v is None else float(v) for v in content["values"])
        return cls(values, tuple(map(bool, content["ends"])), edge)

    def points(self, grid: tuple[int, ...]) -> Bool[Tensor, " *grid"]:
        """Mask of the boundary points of a grid with this shape.

        Raises:
            ValueError: If a cloud has another number of points.
        """
        if self.edge is not None:
            if self.edge.shape != grid:
                raise ValueError(
                    f"the boundary is known for {len(self.edge)} points, not for {grid}"
                )
            return self.edge
        mask = torch.zeros(grid, dtype=torch.bool)
        for axis in (axis for axis, ends in enumerate(self.ends) if ends):
            mask.movedim(axis, 0)[[0, -1]] = True
        return mask

    def on(self, grid: tuple[int, ...], like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tensors (factor, summand) such that factor * u + summand has the known boundary values.

        The summand is None if all boundary values are 0.
        """
        fixed = self.points(grid)[..., None] & torch.tensor([v is not None for v in self.values])
        added = fixed * torch.tensor([v or 0.0 for v in self.values])
        return (~fixed).to(like), added.to(like) if any(self.values) else None
