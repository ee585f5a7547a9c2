"""What `make plain` tries, and that a step of it can fail."""

import os
import sys
import threading
from pathlib import Path

import pytest

from pdegen.recipe import load_recipe, recipe_names
from tests.plain import __main__ as plain
from tests.plain.recipes import SMALL


def test_every_shipped_recipe_has_a_small_form():
    assert SMALL.keys() == set(recipe_names())


@pytest.mark.parametrize("name", SMALL)
def test_a_small_form_has_three_samples_and_other_values_than_the_recipe(name):
    small, recipe = SMALL[name], load_recipe(name)
    assert recipe.with_overrides({"samples": 3, **small.changes}).samples == 3
    words = small.options()
    assert words[::2] == ["--set"] * (len(words) // 2)


def ended(step, capsys):
    passed = step.passed(dict(os.environ), threading.Lock())
    return passed, capsys.readouterr().out


def python(program, **expected):
    return plain.Command([sys.executable, "-c", program], **expected)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (python("print('one'); raise SystemExit(3)"), "status 3, not 0\none"),
        (python("print('made')", status=2), "status 0, not 2\nmade"),
        (python("exit('no PETSc')", status=1, line="dolfinx"), "not one line with 'dolfinx'"),
        (python("exit('no dolfinx\\nhere')", status=1, line="dolfinx"), "not one line"),
        (python(""), "no file a.zarr"),
    ],
)
def test_a_step_that_fails_prints_its_command_and_output(tmp_path, capsys, command, said):
    step = plain.Step("a store", [command, python("open('b', 'w')")], tmp_path, ["a.zarr"])
    passed, printed = ended(step, capsys)
    assert not passed
    assert printed.startswith("FAILED")
    assert f"  $ {sys.executable} -c " in printed
    assert said in printed
    assert (tmp_path / "b").exists() is (said == "no file a.zarr")  # nothing runs after a failure


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
