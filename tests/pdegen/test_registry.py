"""Equations by name: those of the project, of files, of installed packages."""

import importlib
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from latex2mathml.converter import convert

from pdegen import plugins
from pdegen.equations import base
from pdegen.equations.base import names
from pdegen.equations.latex import number
from pdegen.plugins import load_plugin
from pdegen.recipe import Recipe, load_recipe
from pdegen.schema import SchemaError

FILE, RECIPE = "docs/examples/my_equation.py", "docs/examples/my_heat.toml"


pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def own(root, tmp_path):
    """A copy of the example, and of its recipe."""
    return tuple(shutil.copy(root / name, tmp_path) for name in (FILE, RECIPE))


def changed(path, old, new):
    text = Path(path).read_text("utf-8")
    assert old in text
    Path(path).write_text(text.replace(old, new), "utf-8")


@pytest.mark.parametrize("name", sorted(path.stem for path in Path("datasets").glob("*.toml")))
def test_every_equation_states_itself_in_latex(name):
    problem = load_recipe(name).problem
    latex = problem.latex
    assert latex.isascii()
    assert "merror" not in convert(latex)
    for key in ("viscosity", "gamma", "source", "traction"):
        value = getattr(problem, key, None)
        if isinstance(value, int | float):  # laws and fields have no number
            assert f"= {number(value)}" in latex


def test_the_equations_of_the_recipes_are_all_that_are_shipped():
    """So that what is tested of each recipe is tested of each equation."""
    recipes = (load_recipe(path.stem) for path in Path("datasets").glob("*.toml"))
    assert {recipe.problem.equation_name for recipe in recipes} == set(base._shipped())


def test_a_file_brings_its_equation(own):
    file, recipe = own
    with pytest.raises(SchemaError) as error:
        load_recipe(recipe)
    said = f"problem.equation: unknown 'heat', known: {', '.join(names())}; one of your own needs -"
    assert said in str(error.value)
    assert "burgers, dam-break, darcy, " in said
    load_plugin(file)
    assert load_recipe(recipe).problem.equation_name == "heat"


def test_a_recipe_is_refused_where_it_names_no_equation(own):
    file, recipe = own
    load_plugin(file)
    content = load_recipe(recipe).model_dump()
    assert names()[-1] == "heat"
    for problem, said in (
        (3, "problem: must be a table, got 3"),
        ({"resolution": 3}, f"problem.equation: is missing, known: {', '.join(names())}; one of"),
        ({"equation": 3}, "problem.equation: unknown 3, known: airfoil, burgers"),
        ({"equation": "../heat"}, "problem.equation: unknown '../heat', known: airfoil, burgers"),
    ):
        with pytest.raises(SchemaError) as error:
            Recipe.parse({**content, "problem": problem}, "here")
        assert str(error.value).startswith(f"here: {said}")


def test_the_file_is_a_part_of_the_fingerprint(own):
    file, recipe = own
    load_plugin(file)
    before = load_recipe(recipe)
    changed(file, "sigma=50.0", "sigma=60.0")
    load_plugin(file)
    assert load_recipe(recipe).fingerprint != before.fingerprint
    assert load_recipe(recipe).model_dump() == before.model_dump()


def test_a_file_with_the_imports_of_earlier_versions_runs(own):
    """An edited one would have another SHA-256, so its stores could not be resumed."""
    file, recipe = own
    changed(file, "gaussian import GaussianCheck, periodic_modes", "gaussian import GaussianCheck")
    changed(file, "from pdegen.equations.base import Problem, equation\n", """\
from pdegen.checks.modes import periodic_modes
from pdegen.equations.base import Problem
from pdegen.equations.registry import equation
""")  # fmt: skip
    changed(file, "pdegen.store.layout", "pdegen.store.variables")
    load_plugin(file)
    assert load_recipe(recipe).problem.equation_name == "heat"


def test_an_equation_of_the_project_keeps_its_fingerprint():
    """Stores that were made earlier are found and resumed."""
    made = {"burgers-quick": "9bce100d54a2", "darcy-quick": "128d3e7623fc"}
    assert {name: load_recipe(name).fingerprint[:12] for name in made} == made


def test_a_worker_gets_the_file_with_the_recipe(own, tmp_path):
    """In another process, where nobody has run the file and it is not there any more."""
    file, recipe = own
    load_plugin(file)
    sent = tmp_path / "sent"
    heat = load_recipe(recipe)
    sent.write_bytes(pickle.dumps(heat))
    (tmp_path / "my_equation.py").unlink()
    code = (
        "import pickle, sys; r = pickle.load(open(sys.argv[1], 'rb'));"
        "print(r.fingerprint, r.problem.compute(r.seed, range(2))['u'].sum())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(sent)], capture_output=True, text=True, check=True
    )
    here = heat.problem.compute(heat.seed, range(2))["u"].sum()
    assert done.stdout.split() == [heat.fingerprint, str(here)]


def test_a_worker_serves_two_versions_of_a_file(own):
    """A scheduler that is there already has workers that have seen an earlier one."""
    file, recipe = own
    sent = []
    for old, new in (("sigma=50.0", "sigma=50.0"), ("sigma=50.0", "sigma=100.0")):
        changed(file, old, new)
        load_plugin(file)
        heat = load_recipe(recipe)
        sent.append(pickle.dumps(heat.problem))
    first, second, again = (pickle.loads(one) for one in (*sent, sent[0]))
    assert second.source.sigma == 2 * first.source.sigma
    assert again.source.sigma == first.source.sigma


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'Literal["heat"]',
            'Literal["burgers"]',
            "the equation burgers is registered already: choose",
        ),
        ("@equation\n", "", "registers nothing of its own: decorate an equation with @equation"),
        ('Literal["heat"]', "str", "Heat needs the field equation: Literal"),
        ("import numpy as np", "import nunpy as np", "line 6: ModuleNotFoundError: No module nam"),
        ("class Heat", "clas Heat", "line 20: SyntaxError: invalid syntax"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(own, old, new, said):
    file, _ = own
    changed(file, old, new)
    with pytest.raises(SchemaError) as error:
        load_plugin(file)
    assert said in str(error.value)
    assert str(error.value).startswith(file)
    assert "\n" not in str(error.value)


def test_what_is_no_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent.py", "a\0b"):
        with pytest.raises(SchemaError, match="cannot read"):
            load_plugin(str(path))
    with open(tmp_path / "large.py", "wb") as file:
        file.truncate(2**23)
    with pytest.raises(SchemaError, match="too large for a plugin"):
        load_plugin(str(tmp_path / "large.py"))


def test_two_files_cannot_have_one_name(own, tmp_path):
    file, _ = own
    load_plugin(file)
    load_plugin(file)  # the same once more
    second = shutil.copy(file, tmp_path / "second.py")
    changed(second, "sigma=50.0", "sigma=60.0")
    with pytest.raises(SchemaError, match=r"the equation heat comes from .*my_equation.py: choose"):
        load_plugin(second)


def test_an_installed_package_brings_its_equation(own, tmp_path, monkeypatch):
    file, recipe = own
    shutil.copy(file, tmp_path / "heat_of_a_package.py")
    folder = tmp_path / "heat_of_a_package-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: heat-of-a-package\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[pdegen.equations]\nheat = heat_of_a_package\nabsent = no_such_module\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert {"heat", "absent"} <= set(names())
    heat = load_recipe(recipe)
    assert type(heat.problem).__module__ == "heat_of_a_package"
    assert plugins.plugin_of(type(heat.problem)) is None  # its code enters by its number alone
    with pytest.raises(SchemaError, match="equation absent of no_such_module: No module named"):
        heat.with_overrides({"problem.equation": "absent"})
