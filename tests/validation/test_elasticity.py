"""Energy and stress of stretched sheets beside FEniCSx, on triangles by Gmsh around the void."""

import json
import subprocess

import numpy as np
import pytest

from pdegen.equations.elasticity.mesh import Rings
from pdegen.equations.elasticity.problem import Elasticity
from pdegen.equations.elasticity.solver import Body, Hooke, Sheet, von_mises
from pdegen.recipe import load_recipe
from pdegen.sampling.coefficients import RandomVoid
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
    answer = by_triangles(python, root, numbers, 0.025, poisson=poisson)
    assert answer["energy"] == pytest.approx(energy, rel=1e-4)


def by_triangles(python, root, theta, size, degree=2, poisson=0.5, points=()):
    """The answer of `tests/oracles/sheet.py` for the sheet of one row of theta."""
    ray = np.stack([np.cos(KNOTS), np.sin(KNOTS)], axis=-1)
    boundary = 0.5 + VOID.radius(theta, KNOTS)[0][:, None] * ray
    request = {"traction": 100.0, "young": 1.0, "poisson": poisson,
               "boundary": boundary.tolist(), "points": np.asarray(points).tolist()}  # fmt: skip
    command = [python, "-I", str(root / "tests/oracles/sheet.py"), str(size), str(degree)]
    answer = subprocess.run(
        command, input=json.dumps(request), capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(answer.stdout)


@pytest.mark.parametrize("sample", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_certified_stresses_are_those_of_triangles(python, root, sample):
    """Relative L² over the points, beside displacements of degree 3 on some 17,000 triangles."""
    problem = load_recipe("elasticity-certified").problem
    assert isinstance(problem, Elasticity)
    label = problem.compute(0, range(sample, sample + 1))
    radius = VOID.radius(label["theta"], problem.rings.angles)
    points = Body.of(problem.rings, radius).points[0]
    stress = by_triangles(python, root, label["theta"], 0.0125, 3, points=points)["stress"]
    u = von_mises(np.array(stress))
    distance = np.linalg.norm(label["u"][0] - u) / np.linalg.norm(u)
    print(f"sample {sample}: stated {label['error'][0]:.1e}, distance {distance:.1e}")
    assert distance < 2 * label["error"][0] < 2e-3
