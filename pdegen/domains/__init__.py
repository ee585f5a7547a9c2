"""Domains of functions: points, quadrature weights, boundary, spacing, cells.

A box is a product of one-dimensional grids. A curvilinear mesh has nodes at the positions x[i, j],
and a cloud has points without an order. The positions of meshes and clouds may differ from sample
to sample: then the domain holds no positions, and a store has them in variables of the role
`geometry`.
"""

from pdegen.domains.attributes import from_attributes
from pdegen.domains.box import Box
from pdegen.domains.domain import NAMES, Domain
from pdegen.domains.grids import GRIDS, CellGrid, DomainError, Grid, NodalGrid, PeriodicGrid
from pdegen.domains.meshes import Cloud, Curvilinear

__all__ = [
    "GRIDS", "NAMES", "Box", "CellGrid", "Cloud", "Curvilinear", "Domain", "DomainError", "Grid",
    "NodalGrid", "PeriodicGrid", "from_attributes",
]  # fmt: skip
