"""What `make plain` tries, and that a step of it can fail."""

import os
import sys
from pathlib import Path

import pytest

from pdegen.recipe import load_recipe, recipe_names
from tests.plain import __main__ as plain
from tests.plain.recipes import CHANGED, SMALL


def test_every_shipped_recipe_is_tried_and_every_small_form_is_of_one():
    assert SMALL.keys() == set(recipe_names())
    assert CHANGED.keys() <= SMALL.keys()


@pytest.mark.parametrize("name", SMALL)
def test_a_small_form_has_three_samples_and_other_values_than_the_recipe(name):
    small, recipe = SMALL[name], load_recipe(name)
    assert recipe.with_overrides({"samples": 3, **small.changes}).samples == 3
    words = small.options()
    assert words[::2] == ["--set"] * (len(words) // 2)


def python(program):
    return [sys.executable, "-c", program]


@pytest.mark.parametrize(
    ("command", "refusal", "said"),
    [
        (python("print('one'); raise SystemExit(3)"), "", "status 3\none"),
        (python("print('made')"), "dolfinx", "status 0\nmade"),
        (python("print('no PETSc'); exit(2)"), "dolfinx", "not one line with 'dolfinx'"),
        (python("print('no dolfinx\\nhere'); exit(2)"), "dolfinx", "not one line"),
        (python("print('no dolfinx'); exit(2)"), "dolfinx", ""),
        (python(""), "", "no file a.zarr"),
        (python("open('a.zarr', 'w')"), "", ""),
    ],
)
def test_a_step_that_fails_prints_its_command_and_output(tmp_path, capsys, command, refusal, said):
    results = [] if refusal else ["a.zarr"]
    step = plain.Step("a store", [command], tmp_path, results, refusal)
    assert step.passed(dict(os.environ)) == (not said)
    printed = capsys.readouterr().out
    assert printed.startswith("FAILED" if said else "passed")
    assert said in printed


def test_no_variable_of_developers_reaches_a_user():
    ours = {"CI": "true", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
            "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    given = {"HOME": "/home/me", "PATH": "/usr/bin", **ours}
    assert plain.users(given, Path("/v/bin/python")) == {
        "HOME": "/home/me", "PATH": "/v/bin:/usr/bin", "PDEGEN_DOLFINX_PYTHON": "/v/bin/python",
    }  # fmt: skip


def test_continuous_integration_tries_it_before_the_tests(root):
    lines = (root / ".ci/run").read_text("utf-8").splitlines()
    made = [line.split()[1] for line in lines if line.startswith("make ")]
    assert made == ["plain", "test"]
