"""Where a mesh in the plane ends: the loops of its boundary, and the bodies that it goes around."""

from collections import defaultdict

import numpy as np
from jaxtyping import Float, Int

from pdegen.domains import Cloud, Curvilinear, Domain

Loop = Int[np.ndarray, " n"]  # numbers of points, the first of which follows the last


def bodies(domain: Domain) -> list[Loop]:
    """The loops around what a mesh leaves out: all of its boundary but the longest one outside.

    Points at one place are one point, so that a cut, as in a C-grid behind its section, is no
    boundary. Where loops touch there is no order in them, and none is found.

    >>> around = 2 * np.pi * np.arange(8) / 8
    >>> circle = np.stack([np.cos(around), np.sin(around)], axis=-1)
    >>> ring = Curvilinear.of(np.stack([circle, 2 * circle]), (False, True))
    >>> [sorted(loop.tolist()) for loop in bodies(ring)]
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """
    cells = _cells(domain)
    if cells is None or not len(cells):
        return []
    points = domain.points.reshape(-1, 2)
    _, first, same = np.unique(points, axis=0, return_index=True, return_inverse=True)
    loops = [first[loop] for loop in _loops(same.reshape(-1)[cells])]
    sizes = [_area(points[loop]) for loop in loops]
    return [loop for loop, size in zip(loops, sizes, strict=True) if size < max(sizes)]


def _cells(domain: Domain) -> Int[np.ndarray, "cells corners"] | None:
    """Numbers of the corners of each cell in the plane, in order around it."""
    if isinstance(domain, Curvilinear) and domain.dim == 2:
        number = np.arange(np.prod(domain.shape)).reshape(domain.shape)
        for axis, closed in enumerate(domain.closed):
            if closed:
                number = np.concatenate([number, number.take([0], axis=axis)], axis=axis)
        corners = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
        return np.stack(corners, axis=-1).reshape(-1, 4)
    if isinstance(domain, Cloud) and domain.dim == 2 and domain.cells is not None:
        return np.where(domain.cells < 0, domain.cells[:, :1], domain.cells)
    return None


def _loops(cells: Int[np.ndarray, "cells corners"]) -> list[Loop]:
    """The edges of one cell alone, one after another."""
    edges = np.sort(np.stack([cells, np.roll(cells, -1, axis=1)], axis=-1).reshape(-1, 2), axis=1)
    found, times = np.unique(edges[edges[:, 0] < edges[:, 1]], axis=0, return_counts=True)
    beside = defaultdict[int, list[int]](list)
    for a, b in found[times == 1].tolist():
        beside[a].append(b)
        beside[b].append(a)
    if any(len(ends) != 2 for ends in beside.values()):
        return []
    loops = list[Loop]()
    while beside:
        loop, there = list[int](), next(iter(beside))
        while there in beside:
            loop.append(there)
            one, other = beside.pop(there)
            there = one if one in beside else other
        loops.append(np.array(loop))
    return loops


def _area(polygon: Float[np.ndarray, "n 2"]) -> float:
    x, y = polygon.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
