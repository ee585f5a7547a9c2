"""Domains of functions: their points, quadrature weights, boundary, spacing and cells.

A box is a product of one-dimensional grids. A curvilinear mesh has nodes at positions x[i, j]. A
cloud is an unordered set of points. The positions of a mesh or cloud may differ from sample to
sample. In this case the domain has no positions, and a store has them in variables with the role
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
