"""Quadratic elements on a mesh that follows a closed curve in the unit square; for the worker.

Gmsh makes the triangles; every edge on the curve is a parabola through three points of the curve.
This file imports only Gmsh, dolfinx and its dependencies.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import gmsh
import numpy as np
import ufl
from dolfinx import fem, mesh
from mpi4py import MPI
from petsc4py import PETSc

_function_space = getattr(fem, "functionspace", None) or fem.FunctionSpace
_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
_EDGES = np.array([[1, 2], [0, 2], [0, 1]])  # the edge k of a triangle, opposite to its corner k


def perimeter(n: int) -> np.ndarray:
    """4n equally spaced points of the boundary of (0,1)², counter-clockwise from (0, 0)."""
    t = np.arange(n)[:, None] / n
    sides = zip(_CORNERS, np.roll(_CORNERS, -1, axis=0), strict=True)
    return np.concatenate([start + t * (end - start) for start, end in sides])


def triangles(curve: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes (N, 2) and triangles (M, 6) of a mesh, and whether each triangle lies inside the curve.

    The first nodes are the 4n corners on the boundary, followed by those on the curve. A triangle
    has its three corners, and then the midpoints of the edges opposite to them.

    Args:
        curve: 2p points of a closed curve: the corners on it, each followed by the middle of an
            edge.
        n: Number of edges along each side of the square.
    """
    outer, inner = perimeter(n), curve[::2]
    gmsh.initialize([], False)  # without the configuration of a user
    try:
        for option in ("General.Terminal", "Mesh.MeshSizeExtendFromBoundary"):
            gmsh.option.setNumber(option, float(option.startswith("Mesh")))
        gmsh.option.setNumber("General.NumThreads", 1)
        gmsh.option.setNumber("Mesh.Algorithm", 6)  # frontal Delaunay
        geometry = gmsh.model.geo
        loops = []
        for points in (outer, inner):
            step = np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1)
            size = (step + np.roll(step, 1)) / 2
            tags = [geometry.addPoint(x, y, 0.0, h) for (x, y), h in zip(points, size, strict=True)]
            lines = [
                geometry.addLine(a, b) for a, b in zip(tags, [*tags[1:], tags[0]], strict=True)
            ]
            for line in lines:
                geometry.mesh.setTransfiniteCurve(line, 2)  # one edge
            loops.append(geometry.addCurveLoop(lines))
        surfaces = [geometry.addPlaneSurface(loops), geometry.addPlaneSurface(loops[1:])]
        geometry.synchronize()
        gmsh.model.mesh.generate(2)
        tags, positions, _ = gmsh.model.mesh.getNodes()
        parts = [gmsh.model.mesh.getElementsByType(2, surface)[1] for surface in surfaces]
    finally:
        gmsh.finalize()
    order = np.argsort(tags)
    x, corners = positions.reshape(-1, 3)[order, :2], np.concatenate(parts).reshape(-1, 3)
    corners = np.searchsorted(tags[order], corners)
    inside = np.arange(len(corners)) >= len(parts[0]) // 3
    edges, edge_of = np.unique(
        np.sort(corners[:, _EDGES], axis=2).reshape(-1, 2), axis=0, return_inverse=True
    )
    middles = x[edges].mean(axis=1)
    start, p = len(outer), len(inner)
    ends = np.sort(start + np.stack([np.arange(p), (np.arange(p) + 1) % p], axis=1), axis=1)
    index = {(int(a), int(b)): k for k, (a, b) in enumerate(edges)}
    middles[[index[int(a), int(b)] for a, b in ends]] = curve[1::2]
    cells = np.concatenate([corners, len(x) + edge_of.reshape(-1, 3)], axis=1)
    return np.concatenate([x, middles]), cells, inside


def solve(
    request: Any, compiling: Callable[[], AbstractContextManager[None]]
) -> dict[str, np.ndarray]:
    """u at the nodes of the mesh, for -div(a grad u) = f in the square and u = g on its boundary.

    Args:
        request: `curve` and `n` are those of `triangles`. `a` has the coefficients outside and
            inside the curve. `f` is a number. `g` has the values at the points
            `perimeter(2 n)`.
        compiling: A context in which forms are compiled.

    Returns:
        The mesh as `x`, `cells` and `inside`, the solution `u`, and the relative residual.
    """
    n = int(request["n"])
    x, cells, inside = triangles(request["curve"], n)
    constant = float(request["f"])
    with compiling():
        domain = _mesh(x, cells)
        elements = ("Lagrange", 2), ("DG", 0)
        space, cellwise = (_function_space(domain, element) for element in elements)
        a, g = fem.Function(cellwise), fem.Function(space)
        u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
        dx = ufl.Measure("dx", domain, metadata={"quadrature_degree": 6})
        form = fem.form(a * ufl.inner(ufl.grad(u), ufl.grad(v)) * dx)
        load = fem.form(fem.Constant(domain, PETSc.ScalarType(constant)) * v * dx)
    original = np.asarray(domain.topology.original_cell_index)
    a.x.array[_rows(cellwise.dofmap.list, 1)[:, 0]] = request["a"][inside[original].astype(int)]
    place = np.empty(len(x), dtype=int)  # from nodes to degrees of freedom
    place[cells[original]] = _rows(space.dofmap.list, 6)
    boundary = np.flatnonzero(((x == 0) | (x == 1)).any(axis=1))
    fixed = place[boundary]
    g.x.array[fixed] = np.asarray(request["g"])[_along(x[boundary], 2 * n)]
    bc = fem.dirichletbc(g, np.sort(fixed).astype(np.int32))
    matrix = fem.petsc.assemble_matrix(form, bcs=[bc])
    matrix.assemble()
    b = fem.petsc.assemble_vector(load)
    fem.petsc.apply_lifting(b, [form], [[bc]])
    b.array[fixed] = g.x.array[fixed]

    ksp = PETSc.KSP().create(MPI.COMM_SELF)
    ksp.setType("preonly")
    ksp.getPC().setType("lu")
    ksp.getPC().setFactorSolverType("mumps")
    ksp.setOperators(matrix)
    solution, residual = matrix.createVecs()
    ksp.solve(b, solution)
    matrix.mult(solution, residual)
    residual.axpy(-1, b)
    relative = residual.norm() / (b.norm() or 1.0)
    values = solution.array[place].copy()
    for item in (ksp, matrix, b, solution, residual):
        item.destroy()
    return {"x": x, "cells": cells, "inside": inside, "u": values, "residual": np.array(relative)}


def _along(points: np.ndarray, n: int) -> np.ndarray:
    """Indices of points of the boundary in `perimeter(n)`."""
    x, y = np.rint(n * points.T).astype(int)
    on_first = (y == 0) | (x == n)  # the sides below and on the right
    return np.where(on_first, x + y, 4 * n - x - y) % (4 * n)


def _mesh(x: np.ndarray, cells: np.ndarray) -> mesh.Mesh:
    """The mesh of curved triangles."""
    try:
        from basix.ufl import element

        coordinates = ufl.Mesh(element("Lagrange", "triangle", 2, shape=(2,)))
    except ImportError:  # dolfinx 0.5
        triangle = ufl.Cell("triangle", geometric_dimension=2)
        coordinates = ufl.Mesh(ufl.VectorElement("Lagrange", triangle, 2))
    try:
        return mesh.create_mesh(MPI.COMM_SELF, cells=cells.astype(np.int64), x=x, e=coordinates)
    except TypeError:  # dolfinx before 0.10
        return mesh.create_mesh(MPI.COMM_SELF, cells.astype(np.int64), x, coordinates)


def _rows(dofmap: Any, width: int) -> np.ndarray:
    """The degrees of freedom of each cell."""
    return np.asarray(getattr(dofmap, "array", dofmap)).reshape(-1, width)
