"""Toy equations on clouds and with channels over time: trained, evaluated, reported.

Each of them touches its own file in tests/pdegen/toys/, and no file of the packages."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from pdegen.plugins import plugin_of
from pipelines.runs.reproduction import toml
from tests.pdegen.toys.recipes import TOYS, file_of, recipe_of
from tests.pipelines.command import quietly

MODELS = {
    "disc": {"name": "pit", "width": 8, "heads": 1, "latent": 8, "depth": 1},
    "turning": {"name": "fno", "width": 8, "modes": 2, "depth": 1},
}


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


def check_predictions(name):
    """They have the axes and the points of the store, and NaN at padding."""
    score = json.loads(Path("run/scores.json").read_text("utf-8"))["results"][0]["errors"]
    with xr.open_zarr("predicted") as found, xr.open_zarr("store") as store:
        truth = store.isel(sample=slice(-4, None))
        assert found.u.dims == truth.u.dims
        assert found.u.attrs.get("channels") == truth.u.attrs.get("channels")
        for axis in {*truth.coords, *truth.variables} & {"sample", "time", "x", "y"}:
            there = found[axis].values if name != "disc" else np.nan_to_num(found[axis].values)
            np.testing.assert_allclose(there, truth[axis].values, rtol=1e-6)
        u, p = (values.u.values.reshape(4, -1).astype(float) for values in (truth, found))
        if name == "disc":
            padding = np.arange(16) >= truth["count"].values[:, None]
            assert np.isnan(p[padding]).all()
            assert not np.isnan(p[~padding]).any()
            u, p = np.where(padding, 0.0, u), np.where(padding, 0.0, p)
        errors = np.linalg.norm(p - u, axis=1) / np.linalg.norm(u, axis=1)
        np.testing.assert_allclose(errors, score, rtol=1e-4)


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_goes_from_its_file_to_a_report(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of(name)
    assert plugin_of(type(recipe.problem)).path == file_of(name)
    (tmp_path / "recipe.toml").write_text(toml(recipe.model_dump(mode="json")), "utf-8")
    (tmp_path / "experiment.toml").write_text(experiment(name), "utf-8")
    quietly("generate", "recipe.toml", "--out", "store", "--workers", 1)
    quietly("run", "experiment.toml", "--data", "store", "--out", "run")
    quietly("evaluate", "run/best.safetensors", "--data", "store")
    quietly("predict", "run/best.safetensors", "--data", "store", "--out", "predicted")
    check_predictions(name)
    quietly("plot", "store", "--out", "samples.png")
    assert recipe.problem.formula.split()[0] in (tmp_path / "run/report.html").read_text("utf-8")
    assert len(list((tmp_path / "run/pictures").iterdir())) >= 3
    assert (tmp_path / "samples.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run", "noise on the targets needs samples with equal numbers of points"),
        ("study noise", "noise on the targets needs samples with equal numbers of points"),
        ("study noise", "study noise: samples of recipe disc have different numbers of points"),
    ],
)
def test_noise_is_refused_on_padded_targets_before_the_store_is_generated(
    refused, tmp_path, words, message
):
    recipe = recipe_of("disc")
    (tmp_path / "recipe.toml").write_text(toml(recipe.model_dump(mode="json")), "utf-8")
    (tmp_path / "experiment.toml").write_text(experiment("disc"), "utf-8")
    on = "inputs" if message.startswith("study") else "targets"
    noise = f"noise={{level=0.1,on='{on}'}}"
    assert message in refused(*words.split(), "experiment.toml", "--set", noise)
