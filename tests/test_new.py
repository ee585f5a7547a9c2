"""The list of what a new equation or operator needs: complete for all that are shipped."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pdegen.equations.base import _shipped
from pipelines.cli import common
from tests import new


def lacking(steps, needed=True):
    return [step.what for step in steps if step.needed == needed and not step.done]


@pytest.mark.parametrize("name", _shipped())
def test_every_shipped_equation_has_what_is_needed(name):
    assert lacking(new.equation(name)) == []


@pytest.mark.parametrize("name", common.operators())
def test_every_shipped_operator_has_what_is_needed(name):
    assert lacking(new.operator(name)) == []


def test_pictures_and_tables_are_found_where_they_are():
    assert lacking(new.equation("pulses"), needed=False) == []
    assert lacking(new.operator("transolver-plus"), needed=False) == []


@pytest.mark.parametrize("kind", ["equation", "operator"])
def test_a_name_that_nothing_has_lacks_everything(kind, capsys):
    assert new.main([kind, "no-such-thing"]) == 1
    printed = capsys.readouterr().out
    assert "[x]" not in printed
    assert printed.count("[ ]") >= 9
    assert "pdegen/equations/no_such_thing/" in printed or "models/no_such_thing.py" in printed


def test_a_complete_one_ends_with_status_0(capsys):
    assert new.main(["equation", "vorticity"]) == 0
    assert new.main(["operator", "fno"]) == 0
    assert "[x] pdegen/equations/vorticity/__init__.py and problem.py" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Heat", "a_b", "../x", "", "a b"])
def test_a_name_that_recipes_cannot_have_is_refused(name):
    with pytest.raises(SystemExit) as ended:
        new.main(["equation", name])
    assert ended.value.code == 2


FILES = (
    "datasets", "docs/operators", "docs/pictures", "operators", "pdegen/equations",
    "tests/operators", "tests/pdegen", "tests/pipelines/keys.txt", "benchmarks/growth",
    "benchmarks/results/growth.jsonl", "pipelines/config/benchmarks",
)  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "name", "file", "old", "needed", "said"),
    [
        (new.equation, "pulses", "datasets/pulses-quick.md", None, True, "datasets/pulses-quick"),
        (new.equation, "pulses", "pdegen/equations/pulses/__init__.py", None, True, "@equation"),
        (new.equation, "pulses", "pdegen/equations/pulses/problem.py", "def latex", True, "LaTeX"),
        (new.equation, "pulses", "tests/pdegen/test_pulses.py", None, True, "test_pulses.py"),
        (new.equation, "pulses", "docs/pictures/recipes/pulses.png", None, False, "draw.py pulses"),
        (new.equation, "pulses", "datasets/README.md", "| [pulses](", False, "rows of"),
        (new.equation, "pulses", "tests/pipelines/keys.txt", "equation = pulses", False, "keys"),
        (new.equation, "pulses", "benchmarks/growth/equations.py", '"pulses":', False, "in theory"),
        (new.operator, "flare", "operators/registry.py", 'register("flare"', True, "register("),
        (new.operator, "flare", "docs/operators/index.md", "| `flare` |", True, "index.md: a row"),
        (new.operator, "flare", "tests/operators/test_released.py", '"flare"', True, "test_flare"),
        (new.operator, "flare", "tests/operators/starts.toml", "[flare]", False, "test_starts"),
        (new.operator, "flare", "tests/operators/presets.toml", "[flare]", False, "test_settings"),
        (new.operator, "flare", "docs/pictures/operators/flare.png", None, False, "draw.py flare"),
        (new.operator, "flare", "pipelines/config/benchmarks/standard.toml", 'name = "flare"',
         False, "a row in"),
        (new.operator, "flare", "benchmarks/results/growth.jsonl", '"case": "flare', False,
         "--only flare"),
    ],
)  # fmt: skip
def test_each_part_is_missed(root, tmp_path, steps, name, file, old, needed, said):
    for part in FILES:
        to = tmp_path / part
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (root / part).is_dir() else shutil.copy)(root / part, to)
    changed = tmp_path / file
    if old is None:
        changed.unlink()
    else:
        content = changed.read_text("utf-8")
        assert old in content
        changed.write_text(content.replace(old, "other"), "utf-8")
        if file.endswith("test_released.py"):
            for other in (tmp_path / "tests/operators").glob("test_*.py"):
                other.write_text(other.read_text("utf-8").replace(old, "other"), "utf-8")
    (found,) = lacking(steps(name, tmp_path), needed)
    assert said in found


def test_commands_of_the_list_exist(root):
    steps = [*new.equation("pulses"), *new.operator("fno")]
    modules = {m for step in steps for m in re.findall(r"python -m ([\w.]+)", step.what)}
    files = {f for step in steps for f in re.findall(r"python (docs\S+)", step.what)}
    assert modules >= {"tests.pipelines.test_all_keys", "benchmarks.growth"}
    for module in modules:
        path = Path(root, *module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
    assert all((root / file).exists() for file in files)
