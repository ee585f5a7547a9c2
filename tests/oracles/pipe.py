"""Flow through a bent pipe by FEniCSx with Taylor-Hood elements; for a Python that has FEniCSx.

`python pipe.py` reads one line of JSON: `rows`, `length`, `viscosity`, and `centre`, the height of
the middle at each line of nodes. It prints u and v at the nodes and p at the corners of the
elements, lines first. Forms, matrices and their factors are those of FEniCSx and MUMPS; the mesh is
made of quadrilaterals with nine nodes.
"""

import json
import sys

import dolfinx
import numpy as np
import ufl
from dolfinx import fem
from mpi4py import MPI
from petsc4py import PETSc

STEPS, ENOUGH = 20, 1e-13


def quadrilaterals(centre, rows, length):
    """Nodes on vertical lines around the centre; in a cell corners, edges, middle."""
    lines, nodes = len(centre), 2 * rows + 1
    x = np.linspace(0, length, lines)[:, None] + np.zeros(nodes)
    y = centre[:, None] + np.linspace(-0.5, 0.5, nodes)
    number = np.arange(lines * nodes).reshape(lines, nodes)
    order = [(0, 0), (2, 0), (0, 2), (2, 2), (1, 0), (0, 1), (2, 1), (1, 2), (1, 1)]
    cells = np.stack([
        number[a : a + lines - 2 : 2, b : b + nodes - 2 : 2].ravel() for a, b in order
    ], axis=1)  # fmt: skip
    kind = ufl.Mesh(ufl.VectorElement("Lagrange", "quadrilateral", 2))
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    return dolfinx.mesh.create_mesh(MPI.COMM_SELF, cells.astype(np.int64), points, kind)


def flow(mesh, centre, length, viscosity):
    """Velocity and pressure by Newton's method."""
    cell = mesh.ufl_cell()
    mixed = ufl.VectorElement("Lagrange", cell, 2) * ufl.FiniteElement("Lagrange", cell, 1)
    space = fem.FunctionSpace(mesh, mixed)
    velocities, _ = space.sub(0).collapse()
    given = fem.Function(velocities)
    given.interpolate(lambda x: np.stack([
        np.where(x[0] < 1e-9, 0.25 - (x[1] - centre[0]) ** 2, 0), 0 * x[0]
    ]))  # fmt: skip
    ends = dolfinx.mesh.locate_entities_boundary(mesh, 1, lambda x: x[0] > length - 1e-9)
    mesh.topology.create_connectivity(1, 2)
    facets = np.setdiff1d(dolfinx.mesh.exterior_facet_indices(mesh.topology), ends)
    fixed = fem.locate_dofs_topological((space.sub(0), velocities), 1, facets)
    boundary = fem.dirichletbc(given, fixed, space.sub(0))
    solution = fem.Function(space)
    u, p = ufl.split(solution)
    v, q = ufl.TestFunctions(space)
    dx = ufl.Measure("dx", domain=mesh, metadata={"quadrature_degree": 9})
    form = (
        viscosity * ufl.inner(ufl.grad(u), ufl.grad(v))
        + ufl.dot(ufl.dot(ufl.grad(u), u), v)
        - p * ufl.div(v)
        - q * ufl.div(u)
    ) * dx
    left, right = fem.form(ufl.derivative(form, solution)), fem.form(form)
    fem.petsc.set_bc(solution.vector, [boundary])
    step = fem.Function(space)
    for _ in range(STEPS):
        b = fem.petsc.assemble_vector(right)
        fem.petsc.set_bc(b, [boundary], solution.vector)
        if b.norm() < ENOUGH:
            return solution
        matrix = fem.petsc.assemble_matrix(left, bcs=[boundary])
        matrix.assemble()
        solver = PETSc.KSP().create(MPI.COMM_SELF)
        solver.setOperators(matrix)
        solver.setType("preonly")
        solver.getPC().setType("lu")
        solver.getPC().setFactorSolverType("mumps")
        solver.solve(b, step.vector)
        solution.vector.axpy(-1.0, step.vector)
    sys.exit(f"no convergence: {b.norm()}")


def on_lines(function, centre, rows, length, stride):
    """Values at the nodes, (every stride-th line, every stride-th node, components)."""
    x = function.function_space.tabulate_dof_coordinates()
    line = np.rint(x[:, 0] / length * (len(centre) - 1)).astype(int)
    node = np.rint((x[:, 1] - centre[line] + 0.5) * 2 * rows).astype(int)
    values = function.x.array.reshape(len(x), -1)
    sorted_ = np.full((len(centre), 2 * rows + 1, values.shape[1]), np.nan)
    sorted_[line, node] = values
    return sorted_[::stride, ::stride]


request = json.loads(sys.stdin.readline())
centre, rows, length = np.array(request["centre"]), request["rows"], request["length"]
mesh = quadrilaterals(centre, rows, length)
solution = flow(mesh, centre, length, request["viscosity"])
velocity, pressure = (solution.sub(k).collapse() for k in (0, 1))
u, v = np.moveaxis(on_lines(velocity, centre, rows, length, 1), -1, 0)
p = on_lines(pressure, centre, rows, length, 2)[..., 0]
print(json.dumps({"u": u.tolist(), "v": v.tolist(), "p": p.tolist()}))
