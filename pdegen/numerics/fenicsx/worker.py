"""Finite elements by dolfinx, and the main loop of the worker process.

This file imports only dolfinx and its dependencies, and runs in any Python with dolfinx 0.5 to
0.11. The command is `[mpirun -n k] python -I worker.py`. Requests arrive on stdin, and replies are
written to stdout. A request or a reply is a line with a number of bytes, followed by an .npz
archive of that size. In mode "sample" each rank solves its own rows of a request; in mode "domain"
all ranks solve each row together. The worker ends at the end of stdin.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import fcntl
import functools
import io
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import ufl
from dolfinx import fem, mesh
from mpi4py import MPI
from petsc4py import PETSc

_function_space = getattr(fem, "functionspace", None) or fem.FunctionSpace
_REASONS = {
    value: name for name, value in vars(PETSc.KSP.ConvergedReason).items() if name[:1].isalpha()
}


class Discretisation:
    """The problem ∫ a ∇u·∇v = ∫ f v for all v, u = g on the walls, on n x n cells.

    The coefficient a is constant on each cell. Values at nodes are arrays over the lattice of
    (p n + 1)² points for elements of degree p. These arrays are indexed [x, y], like arrays of
    cells.

    Args:
        comm: MPI communicator of the processes that share the mesh.
        n: Number of cells along each axis.
        element: "Q1" or "Q2" on the cells, "P1" or "P2" on halves of the cells (cut from lower left
            to upper right).
    """

    def __init__(self, comm: MPI.Comm, n: int, element: str) -> None:
        shapes = {"Q": mesh.CellType.quadrilateral, "P": mesh.CellType.triangle}
        if element[:1] not in shapes or element[1:] not in ("1", "2"):
            raise ValueError(f"the element is Q1, Q2, P1 or P2, got {element!r}")
        self.comm, self.element, self.degree = comm, element, int(element[1])
        domain = mesh.create_rectangle(
            comm, [np.zeros(2), np.ones(2)], [n, n], cell_type=shapes[element[0]],
            diagonal=mesh.DiagonalType.right,
        )  # fmt: skip
        nodal = _function_space(domain, ("Lagrange", self.degree))
        cellwise = _function_space(domain, ("DG", 0))

        last = self.degree * n
        self.points = last + 1
        self.node = tuple(np.rint(last * nodal.tabulate_dof_coordinates()[:, :2].T).astype(int))
        self.cell = tuple(np.floor(n * cellwise.tabulate_dof_coordinates()[:, :2].T).astype(int))
        self.owned = nodal.dofmap.index_map.size_local
        on_walls = (self.node[0] % last == 0) | (self.node[1] % last == 0)
        self.walls = np.flatnonzero(on_walls[: self.owned])

        self.a, self.f_cells = fem.Function(cellwise), fem.Function(cellwise)
        self.f_nodes, self.g = fem.Function(nodal), fem.Function(nodal)
        self.bc = fem.dirichletbc(self.g, np.flatnonzero(on_walls).astype(np.int32))
        u, v = ufl.TrialFunction(nodal), ufl.TestFunction(nodal)
        self.form = fem.form(self.a * ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx)
        self.load_cells = fem.form(self.f_cells * v * ufl.dx)
        self.load_nodes = fem.form(self.f_nodes * v * ufl.dx)

        self.matrix = fem.petsc.create_matrix(self.form)
        self.u, self.residual = self.matrix.createVecs()
        self.solvers: dict[str, PETSc.KSP] = {}

    def solver(self, linear: str) -> PETSc.KSP:
        """The linear solver of this name.

        "cg" is conjugate gradients with algebraic multigrid, and "cholesky" is a direct solver.
        """
        if linear in self.solvers:
            return self.solvers[linear]
        ksp = PETSc.KSP().create(self.comm)
        if linear == "cg":
            ksp.setType("cg")
            ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
            ksp.getPC().setType("hypre")
            ksp.getPC().setHYPREType("boomeramg")
        elif linear == "cholesky":
            ksp.setType("preonly")
            ksp.getPC().setType("cholesky")
            ksp.getPC().setFactorSolverType("mumps")
        else:
            raise ValueError(f"the linear solver is cg or cholesky, got {linear!r}")
        self.solvers[linear] = ksp
        return ksp

    def load(self, f: np.ndarray | float) -> PETSc.Vec:
        """The load vector ∫ f v of this process, before the sum over processes.

        f is a number, an array of values on the cells, or an array of values at the nodes.
        """
        if isinstance(f, np.ndarray) and len(f) == self.points:
            self.f_nodes.x.array[:] = f[self.node]
            return fem.petsc.assemble_vector(self.load_nodes)
        self.f_cells.x.array[:] = f[self.cell] if isinstance(f, np.ndarray) else f
        return fem.petsc.assemble_vector(self.load_cells)

    def solve(
        self, a: np.ndarray, f: np.ndarray | float, walls: np.ndarray | float,
        linear: str, rtol: float, limit: int,
    ) -> tuple[np.ndarray, float, int]:  # fmt: skip
        """u at the cell centres, the relative residual and the number of iterations.

        Only the first process returns the whole u. Let w be u minus the values on the walls, so
        that w = 0 on the walls. The residual is ‖b - A w‖/‖b‖ of the linear system for w, where b
        includes the effect of the values on the walls. Raises ArithmeticError if the residual is
        above rtol.
        """
        self.a.x.array[:] = a[self.cell]
        self.matrix.zeroEntries()
        fem.petsc.assemble_matrix(self.matrix, self.form, bcs=[self.bc])
        self.matrix.assemble()
        self.matrix.setOption(PETSc.Mat.Option.SPD, True)  # each assembly resets it
        b = self.load(f)
        if np.any(walls):
            self.g.x.array[:] = walls[self.node] if isinstance(walls, np.ndarray) else walls
            fem.petsc.apply_lifting(b, [self.form], [[self.bc]])
        else:
            self.g.x.array[:] = 0
        b.ghostUpdate(addv=PETSc.InsertMode.ADD, mode=PETSc.ScatterMode.REVERSE)
        b.array[self.walls] = 0
        residual, iterations = self.solve_linear(b, linear, rtol, limit)
        self.u.array[self.walls] = self.g.x.array[self.walls]
        return self.at_centres(), residual, iterations

    def solve_linear(self, b: PETSc.Vec, linear: str, rtol: float, limit: int) -> tuple[float, int]:
        ksp, size = self.solver(linear), b.norm()
        self.u.set(0)
        if size == 0:
            return 0.0, 0
        ksp.setOperators(self.matrix)
        residual, iterations, reason = np.inf, 0, 0
        for _ in range(3):  # once; more only if the residual of CG has drifted from the true one
            ksp.setInitialGuessNonzero(linear == "cg" and iterations > 0)
            ksp.setTolerances(rtol=rtol / 2, max_it=limit - iterations)
            ksp.solve(b, self.u)
            reason = ksp.getConvergedReason()
            self.matrix.mult(self.u, self.residual)
            self.residual.axpy(-1, b)
            residual = self.residual.norm() / size
            if linear == "cg":
                iterations += ksp.getIterationNumber()
            if residual <= rtol or reason <= 0 or linear != "cg":
                break
        if not residual <= rtol or reason <= 0:
            name, advice = {
                "cg": ("CG + hypre", "a larger limit or rtol, or cholesky"),
                "cholesky": ("MUMPS Cholesky", "a larger rtol"),
            }[linear]
            raise ArithmeticError(
                f"{name} ended with {_REASONS.get(reason, reason)} and residual {residual:.1e} "
                f"after {iterations} iterations, rtol = {rtol:g}: use {advice}"
            )
        return float(residual), iterations

    def at_centres(self) -> np.ndarray:
        owned = tuple(index[: self.owned] for index in self.node)
        u = np.zeros((self.points, self.points))
        u[owned] = self.u.array
        if self.comm.size > 1:
            total = np.empty_like(u)
            self.comm.Reduce(u, total, root=0)
            u = total
        if self.degree == 2:
            return u[1::2, 1::2]
        diagonal = (u[:-1, :-1] + u[1:, 1:]) / 2
        return diagonal if self.element == "P1" else (diagonal + (u[:-1, 1:] + u[1:, :-1]) / 2) / 2


@contextmanager
def _compiling() -> Iterator[None]:
    """A context that locks the compilation of forms, so that one process compiles at a time."""
    cache = Path(os.environ["XDG_CACHE_HOME"], "fenics")
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for source in cache.glob("*.c"):
            if not source.with_suffix(".c.cached").exists():
                source.unlink()
        yield


@functools.lru_cache(maxsize=4)
def _discretisation(mode: str, n: int, element: str) -> Discretisation:
    comm = MPI.COMM_SELF if mode == "sample" else MPI.COMM_WORLD
    with _compiling() if comm.rank == 0 else nullcontext():
        return Discretisation(comm, n, element)


def _solved(world: MPI.Comm, request: Any) -> dict[int, Any]:
    """A dictionary from the rows that this process solves to their results."""
    mode, element, linear = (str(request[name]) for name in ("mode", "element", "linear"))
    a, f, walls = (request[name] for name in ("a", "f", "walls"))
    discretisation = _discretisation(mode, a.shape[1], element)
    rows, solved = range(len(a)), dict[int, Any]()
    for row in rows[world.rank :: world.size] if mode == "sample" else rows:
        try:
            solved[row] = discretisation.solve(
                a[row], f[row] if f.ndim == 3 else f if f.ndim else float(f),
                walls if walls.ndim else float(walls),
                linear, float(request["rtol"]), int(request["limit"]),
            )  # fmt: skip
        except (ArithmeticError, PETSc.Error) as failure:
            solved[row] = " ".join(str(failure).split())
    return solved if discretisation.comm.rank == 0 else {}


def _answer(world: MPI.Comm, request: bytes) -> dict[str, Any] | None:
    """The arrays of the reply on the first process; None on the other processes."""
    try:
        content = np.load(io.BytesIO(request), allow_pickle=False)
        if "curve" in content.files:
            return _fitted(content)
        solved: Any = _solved(world, content)
    except Exception as failure:
        traceback.print_exc()
        solved = f"{type(failure).__name__}: {failure}"
    every = world.gather(solved)
    if every is None:
        return None
    if errors := [share for share in every if isinstance(share, str)]:
        return {"error": errors[0]}
    rows = {row: result for share in every for row, result in share.items()}
    for row, result in sorted(rows.items()):
        if isinstance(result, str):
            return {"row": row, "reason": result}
    u, residual, iterations = zip(*(rows[row] for row in sorted(rows)), strict=True)
    return {"u": np.stack(u), "residual": residual, "iterations": iterations}


def _fitted(request: Any) -> dict[str, Any]:
    """The reply to a request of one sample on a mesh that fits a curve."""
    sys.path[:0] = [folder] if (folder := str(Path(__file__).parent)) not in sys.path else []
    import fitted

    try:
        return fitted.solve(request, _compiling)
    except Exception as failure:  # Gmsh raises this class
        traceback.print_exc()
        return {"row": 0, "reason": " ".join(f"{type(failure).__name__}: {failure}".split())}


def _request(world: MPI.Comm) -> bytes:
    """The next request; empty at the end of stdin."""
    if world.rank == 0:
        line = sys.stdin.buffer.readline()
        request = sys.stdin.buffer.read(int(line)) if line else b""
        for rank in range(1, world.size):
            world.send(request, dest=rank)
        return request
    while not world.iprobe(source=0):
        time.sleep(1e-3)
    return world.recv(source=0)


def _serve(world: MPI.Comm) -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps the output of compilers and PETSc out of the replies
    while request := _request(world):
        answer = _answer(world, request)
        if answer is not None:
            archive = io.BytesIO()
            np.savez(archive, ranks=world.size, **answer)
            replies.write(b"%d\n%b" % (archive.tell(), archive.getvalue()))
            replies.flush()


if __name__ == "__main__":
    _serve(MPI.COMM_WORLD)
    os._exit(0)  # MPI_Finalize polls and yields: on a busy machine it takes half a minute
