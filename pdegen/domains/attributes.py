"""Domains constructed from the attributes of stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from pdegen.domains.box import Box
from pdegen.domains.domain import Domain
from pdegen.domains.grids import GRIDS, DomainError
from pdegen.domains.meshes import Cloud, Curvilinear


def from_attributes(
    content: Mapping[str, Any],
    positions: Float[np.ndarray, "*shape dim"] | None = None,
    cells: Int[np.ndarray, "cells corners"] | None = None,
    edge: Bool[np.ndarray, " *shape"] | None = None,
) -> Domain:
    """Construct a domain from the attributes (`Domain.attributes`) and arrays of a store.

    Raises DomainError if the attributes and arrays do not describe a domain.

    Args:
        content: The attributes.
        positions: Positions of the points of a mesh or cloud.
        cells: Cells of a cloud.
        edge: Mask that is True at the boundary points of a cloud.
    """
    try:
        kind = content["kind"]
        if kind == "box":
            grids = [
                GRIDS[axis["grid"]](axis["n"], axis["length"], axis["start"])
                for axis in content["axes"]
            ]
            domain: Domain = Box(tuple(grids))
            names = [axis["name"] for axis in content["axes"]]
        else:
            size, names = tuple(content["shape"]), content["axes"]
            if kind == "curvilinear":
                closed = tuple(content.get("closed", ()))
                domain = Curvilinear(size, content["dim"], positions, closed)
            elif kind == "cloud":
                domain = Cloud(size, content["dim"], positions, cells, edge)
            else:
                raise DomainError(f"unknown kind of domain {kind!r}: box, curvilinear, cloud")
            if domain.moves is not content["moves"]:
                raise DomainError("positions belong either to the domain or to each sample")
    except (KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
        raise DomainError(f"the attributes of the domain are damaged: {error!r}") from None
    except ValueError as error:
        raise DomainError(str(error)) from None
    if tuple(names) != domain.axes:
        raise DomainError(f"axes of a {kind} are {', '.join(domain.axes)}, got {names}")
    return domain
