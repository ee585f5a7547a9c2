"""A stretched sheet with a void, by FEniCSx on a mesh of Gmsh; for a Python that has both.

`python sheet.py SIZE [DEGREE]` reads one line of JSON: `traction`, `young`, `poisson`, `boundary`,
the points around the void, and `points` at which it evaluates the stress. It prints the energy of
displacements of this degree, 2 by default, and the stresses xx, yy, xy at the points, on triangles
of about this size. Near the clamped corners, where stresses are singular, they are a hundred times
smaller.
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

STEP = 1e-6  # of central differences of polynomials


def triangles(boundary, size, degree):
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
    model.mesh.setOrder(degree)  # triangles with curved sides
    mesh = gmshio.model_to_mesh(model, MPI.COMM_SELF, 0, gdim=2)[0]
    gmsh.finalize()
    return mesh


def answer(mesh, degree, traction, young, poisson, points):
    """½ ∫ σ : ε in plane stress, and σ at the points."""
    space = fem.VectorFunctionSpace(mesh, ("Lagrange", degree))
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
    energy = fem.assemble_scalar(
        fem.form(ufl.inner(stress(solution), strain(solution)) / 2 * ufl.dx)
    )
    slope = gradient(mesh, solution, np.reshape(points, (-1, 2)))
    shear = (slope[:, 0, 1] + slope[:, 1, 0]) / 2
    normal = [
        (1 - poisson) * slope[:, i, i] + poisson * (slope[:, 0, 0] + slope[:, 1, 1]) for i in (0, 1)
    ]
    stresses = np.stack([*normal, (1 - poisson) * shear], axis=-1) * young / (1 - poisson**2)
    return {"energy": energy, "stress": stresses.tolist()}


def gradient(mesh, u, points):
    """∂u_i/∂x_j at points, by central differences of the polynomial of a triangle at each."""
    at = np.pad(points, ((0, 0), (0, 1)))
    tree = dolfinx.geometry.BoundingBoxTree(mesh, mesh.topology.dim)
    near = dolfinx.geometry.compute_collisions(tree, at)
    cells = dolfinx.geometry.compute_colliding_cells(mesh, near, at)
    first = np.array([cells.links(k)[0] for k in range(len(at))], np.int32)
    steps = STEP * np.eye(3)[:2]
    parts = [(u.eval(at + step, first) - u.eval(at - step, first)) / (2 * STEP) for step in steps]
    return np.stack(parts, axis=-1)


request = json.loads(sys.stdin.readline())
degree = int(sys.argv[2]) if sys.argv[2:] else 2
mesh = triangles(request.pop("boundary"), float(sys.argv[1]), degree)
count = mesh.topology.index_map(2).size_global
print(json.dumps({**answer(mesh, degree, **request), "triangles": count}))
