"""The flow through a bent pipe beside FEniCSx, and the error that a store states at full size."""

import json
import subprocess

import numpy as np
import pytest

from pdegen.equations.pipe.solver import CentreLine, Pipe
from tests.validation.pipe import errors

HEIGHTS, SLOPES = np.array([[0, 0.9, -0.6, 0.3, -0.8]]), np.array([[1.5, -1.0, 1.8, -0.7, 0.4]])


@pytest.mark.parametrize(("columns", "rows"), [(16, 16), (24, 8)])
def test_the_flow_is_that_of_another_library(dolfinx, root, columns, rows):
    pipe = Pipe(columns, rows, 10.0, 0.005)
    centre = CentreLine(HEIGHTS, SLOPES)(2 * columns + 1)
    flow = pipe.solve(centre).flow
    request = {"rows": rows, "length": 10.0, "viscosity": 0.005, "centre": centre[0].tolist()}
    answer = subprocess.run(
        [dolfinx, "-I", str(root / "tests/oracles/pipe.py")], input=json.dumps(request),
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    reference = {name: np.array(values) for name, values in json.loads(answer.stdout).items()}
    ours = {"u": flow.velocity[0, 0], "v": flow.velocity[0, 1], "p": flow.pressure[0]}
    for name, values in ours.items():
        difference = np.linalg.norm(values - reference[name]) / np.linalg.norm(reference[name])
        assert difference < 1e-9, name  # of round-off: the discrete equations are the same


@pytest.mark.slow
def test_stated_errors_are_true_ones_at_full_size():
    ratio = np.array([stated / true for stated, true in errors(129, [3, 700])])
    np.testing.assert_array_less(abs(np.log(ratio)), np.log(1.1))
