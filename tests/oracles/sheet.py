"""A stretched sheet with a void, by FEniCSx on a mesh of Gmsh; for a Python that has both.

`python sheet.py SIZE` reads one line of JSON: `traction`, `young`, `poisson`, and `boundary`, the
points around the void. It prints the energy of displacements of degree 2 on triangles of about
this size; near the clamped corners, where stresses are singular, they are a hundred times smaller.
"""

import json
import sys

import dolfinx
import gmsh
import numpy as np
import ufl
from dolfinx import fem
from dolfinx.io import gmshio
from mpi4py import MPI
from petsc4py import PETSc


def triangles(boundary, size):
    """The unit square without the void inside a closed spline."""
    gmsh.initialize()
    gmsh.option.setNumber("General.Terminal", 0)
    model, add = gmsh.model, gmsh.model.occ
    knots = [add.addPoint(x, y, 0) for x, y in boundary]
    void = add.addCurveLoop([add.addSpline([*knots, knots[0]])])
    corners = [add.addPoint(x, y, 0) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))]
    sides = [add.addLine(a, b) for a, b in zip(corners, corners[1:] + corners[:1], strict=True)]
    sheet = add.addPlaneSurface([add.addCurveLoop(sides), void])
    add.synchronize()
    model.addPhysicalGroup(2, [sheet], 1)
    near = model.mesh.field
    near.add("Distance", 1)
    near.setNumbers(1, "PointsList", corners[:2])
    near.add("Threshold", 2)
    for key, value in {"InField": 1, "SizeMin": size / 100, "SizeMax": size,
                       "DistMin": 0, "DistMax": 0.2}.items():  # fmt: skip
        near.setNumber(2, key, value)
    near.setAsBackgroundMesh(2)
    gmsh.option.setNumber("Mesh.MeshSizeFromPoints", 0)
    gmsh.option.setNumber("Mesh.MeshSizeExtendFromBoundary", 0)
    model.mesh.generate(2)
    model.mesh.setOrder(2)  # triangles with curved sides
    mesh = gmshio.model_to_mesh(model, MPI.COMM_SELF, 0, gdim=2)[0]
    gmsh.finalize()
    return mesh


def energy(mesh, traction, young, poisson):
    """½ ∫ σ : ε in plane stress."""
    space = fem.VectorFunctionSpace(mesh, ("Lagrange", 2))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)

    def strain(w):
        return ufl.sym(ufl.grad(w))

    def stress(w):
        e = strain(w)
        return (
            young / (1 - poisson**2) * ((1 - poisson) * e + poisson * ufl.tr(e) * ufl.Identity(2))
        )

    side = mesh.topology.dim - 1
    top = np.sort(dolfinx.mesh.locate_entities_boundary(mesh, side, lambda x: x[1] > 1 - 1e-9))
    marked = dolfinx.mesh.meshtags(mesh, side, top, np.ones(len(top), np.int32))
    ds = ufl.Measure("ds", domain=mesh, subdomain_data=marked)
    force = fem.Constant(mesh, PETSc.ScalarType((0, traction)))
    below = fem.locate_dofs_geometrical(space, lambda x: x[1] < 1e-9)
    clamped = fem.dirichletbc(np.zeros(2), below, space)
    a, load = (
        fem.form(ufl.inner(stress(u), strain(v)) * ufl.dx),
        fem.form(ufl.dot(force, v) * ds(1)),
    )
    matrix = fem.petsc.assemble_matrix(a, bcs=[clamped])
    matrix.assemble()
    b = fem.petsc.assemble_vector(load)
    fem.petsc.set_bc(b, [clamped])
    solver = PETSc.KSP().create(MPI.COMM_SELF)
    solver.setOperators(matrix)
    solver.setType("preonly")
    solver.getPC().setType("lu")
    solver.getPC().setFactorSolverType("mumps")
    solution = fem.Function(space)
    solver.solve(b, solution.vector)
    return fem.assemble_scalar(fem.form(ufl.inner(stress(solution), strain(solution)) / 2 * ufl.dx))


request = json.loads(sys.stdin.readline())
mesh = triangles(request.pop("boundary"), float(sys.argv[1]))
count = mesh.topology.index_map(2).size_global
print(json.dumps({"energy": energy(mesh, **request), "triangles": count}))
