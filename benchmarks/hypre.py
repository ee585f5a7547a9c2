"""Conjugate gradients with hypre's BoomerAMG through petsc4py, in any Python that has it.

PyPI has only the source of petsc4py, and Debian packages it for its own Python. So the solver is a
separate process, `python hypre.py SYSTEMS.npz RTOL`, which solves all systems for each line of
input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

# this file imports nothing from pdegen, since it runs in environments without it
PYTHONS = (os.environ.get("PDEGEN_DOLFINX_PYTHON"), sys.executable, "/usr/bin/python3")
MISSING = (
    "no petsc4py with hypre: apt-get install python3-petsc4py-real (Debian), or "
    "PETSC_CONFIGURE_OPTIONS=--download-hypre pip install 'pdegen-operators[hypre]', "
    "which compiles PETSc"
)
_PROBE = "from petsc4py import PETSc; PETSc.PC().create().setType('hypre')"


@contextmanager
def hypre(matrices: Sequence[Any], b: np.ndarray, rtol: float) -> Iterator[Hypre | None]:
    """A process that solves A u = b for these sparse matrices; None if no Python has hypre."""
    python = next((p for p in PYTHONS if p and _runs(p)), None)
    if python is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        systems = {"b": b, "count": len(matrices)}
        for i, matrix in enumerate(matrices):
            csr = matrix.tocsr()
            systems |= {f"start{i}": csr.indptr, f"column{i}": csr.indices, f"value{i}": csr.data}
        path = f"{folder}/systems.npz"
        np.savez(path, **systems)
        with subprocess.Popen(
            [python, "-I", __file__, path, repr(rtol)],
            env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            yield Hypre(process)
            assert process.stdin is not None
            process.stdin.close()


class Hypre:
    """The solver process. A call solves all systems, set-up included.

    A call returns processor seconds, the largest relative residual and the largest number of
    iterations.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"hypre ended with status {self._process.wait()}")
        return json.loads(answer)


def _runs(python: str) -> bool:
    command = [python, "-I", "-c", _PROBE]
    try:
        return subprocess.run(command, env=_environment(), capture_output=True).returncode == 0
    except OSError:
        return False


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _serve(path: str, rtol: float) -> None:
    from petsc4py import PETSc  # pyright: ignore[reportMissingImports]

    systems = np.load(path)
    b = PETSc.Vec().createWithArray(systems["b"])
    matrices = []
    for i in range(int(systems["count"])):
        csr = tuple(systems[f"{name}{i}"] for name in ("start", "column", "value"))
        matrix = PETSc.Mat().createAIJ((b.size, b.size), csr=csr)
        matrix.setOption(PETSc.Mat.Option.SPD, True)
        matrices.append(matrix)
    for _ in sys.stdin:
        figures = {"seconds": 0.0, "residual": 0.0, "iterations": 0}
        for matrix in matrices:
            u, start = b.duplicate(), time.process_time()
            solver = PETSc.KSP().create()
            solver.setOperators(matrix)
            solver.setType("cg")
            solver.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
            solver.getPC().setType("hypre")
            solver.getPC().setHYPREType("boomeramg")
            solver.setTolerances(rtol=rtol)
            solver.solve(b, u)
            figures["seconds"] += time.process_time() - start
            figures["residual"] = max(figures["residual"], (b - matrix * u).norm() / b.norm())
            figures["iterations"] = max(figures["iterations"], solver.getIterationNumber())
            solver.destroy()
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], float(sys.argv[2]))
