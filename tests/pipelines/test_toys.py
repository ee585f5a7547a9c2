"""Toy equations on meshes, on clouds and with channels over time: trained, evaluated, reported.

Each of them touches its own file in tests/pdegen/toys/, and no file of the packages."""

import pytest

from pdegen.equations.registry import source_of
from pipelines.runs.reproduction import toml
from tests.pdegen.toys.recipes import TOYS, file_of, recipe_of
from tests.pipelines.command import quietly

PIT = {"name": "pit", "width": 8, "heads": 1, "latent": 8, "depth": 1}
MODELS = {"bent": PIT, "disc": PIT, "turning": {"name": "fno", "width": 8, "modes": 2, "depth": 1}}


def experiment(name):
    """A short training on all points of a toy's store, as TOML."""
    content = {
        "name": name,
        "summary": f"the toy {name}",
        "resolutions": [16],
        "data": {"recipe": "recipe.toml", "resolution": 16},
        "model": MODELS[name],
        "training": {"epochs": 2, "batch": 4, "loss": {"name": "l2"}},
    }
    return toml(content)


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_goes_from_its_file_to_a_report(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of(name)
    assert source_of(type(recipe.problem)).path == file_of(name)
    (tmp_path / "recipe.toml").write_text(toml(recipe.model_dump(mode="json")), "utf-8")
    (tmp_path / "experiment.toml").write_text(experiment(name), "utf-8")
    quietly("generate", "recipe.toml", "--out", "store", "--workers", 1)
    quietly("run", "experiment.toml", "--data", "store", "--out", "run")
    quietly("evaluate", "run/best.safetensors", "--data", "store")
    quietly("plot", "store", "--out", "samples.png")
    assert recipe.problem.formula.split()[0] in (tmp_path / "run/report.html").read_text("utf-8")
    assert len(list((tmp_path / "run/pictures").iterdir())) >= 3
    assert (tmp_path / "samples.png").stat().st_size > 1000
