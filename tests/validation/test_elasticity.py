"""The energy of stretched sheets beside FEniCSx, on triangles by Gmsh around the void."""

import json
import subprocess

import numpy as np
import pytest

from pdegen.equations.elasticity.material import Hooke
from pdegen.equations.elasticity.mesh import Rings
from pdegen.equations.elasticity.solver import Body, Sheet
from pdegen.sampling.void import RandomVoid
from tests.absent import absent

VOID = RandomVoid(least=0.2, span=0.2, sigma=16.0, tau=3.0, modes=5)
KNOTS = 2 * np.pi * np.arange(400) / 400  # angles of the spline around the void


@pytest.fixture(scope="module")
def python(dolfinx):
    """A Python with FEniCSx and Gmsh."""
    command = [dolfinx, "-I", "-c", "import gmsh"]
    if subprocess.run(command, capture_output=True).returncode:
        absent(f"{dolfinx} has no gmsh: apt-get install python3-gmsh")
    return dolfinx


@pytest.mark.parametrize(
    ("theta", "poisson"),
    [([10, -20, 15, 5, -10, 20, -5, 10, 15, -15], 0.2),
     pytest.param([0.0] * 10, 0.5, marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_energy_is_that_of_triangles(python, root, theta, poisson):
    """Both converge from below; the sheets have 6,912 quadrilaterals, and some 4,300 triangles."""
    numbers = np.array([theta], float)
    sheet = Sheet(Rings(288, 24), Hooke(1.0, poisson), 100.0)
    body = Body.of(sheet.rings, VOID.radius(numbers, sheet.rings.angles))
    gradient = body.gradient(sheet.solve(body).u)
    energy = (sheet.material.energy(gradient) * body.weights).sum()
    ray = np.stack([np.cos(KNOTS), np.sin(KNOTS)], axis=-1)
    boundary = 0.5 + VOID.radius(numbers, KNOTS)[0][:, None] * ray
    request = {"traction": 100.0, "young": 1.0, "poisson": poisson, "boundary": boundary.tolist()}
    command = [python, "-I", str(root / "tests/oracles/sheet.py"), "0.025"]
    answer = subprocess.run(
        command, input=json.dumps(request), capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(answer.stdout)["energy"] == pytest.approx(energy, rel=1e-4)
