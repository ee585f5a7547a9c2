"""Stores whose samples differ in their shape alone: pictures, and models of the positions."""

import pytest
from matplotlib.image import imread

from pdegen.making.generate import generate
from pdegen.making.verify import verify
from pdegen.recipe import load_recipe
from pdegen.store.store import open_sealed
from pipelines.declared.experiment import Experiment
from pipelines.declared.physics import functions_in
from pipelines.reports.pictures import plot_store
from tests.pipelines.command import call, quietly


@pytest.fixture(scope="module")
def sheets(tmp_path_factory):
    recipe = load_recipe("elasticity-quick").with_overrides(
        {"problem.resolution": 12, "samples": 24, "shard": 8}
    )
    return generate(recipe, str(tmp_path_factory.mktemp("sheets") / "s.zarr"), workers=1).url


def test_a_store_is_verified_and_made_again(sheets):
    found = verify(sheets, deep=2)
    assert (found.faults, found.law, len(found.recomputed)) == ([], True, 2)


def test_positions_stand_for_inputs(sheets):
    assert functions_in(open_sealed(sheets), "input") == ["x", "y"]
    experiment = Experiment.on_store(sheets, "lrsa")
    assert experiment.variables == (["x", "y"], "u")
    assert experiment.data.resolution == 108


def test_pictures_show_what_is_sought(sheets, tmp_path):
    drawn = plot_store(sheets, None, tmp_path / "sheets.png")
    height, width, _ = imread(drawn).shape
    assert 2 * width < 3 * height  # stress and both displacements: three rows of four samples


def test_a_model_learns_from_positions(sheets, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    quietly("train", "--model", "galerkin-transformer", "--set", "decoder=pointwise", "--set",
            "width=16", "--set", "epochs=1", "--data", sheets, "--out", out)  # fmt: skip
    scored = call(capsys, monkeypatch, "evaluate", out / "best.safetensors", "--data", sheets)
    assert scored.status == 0
    assert "relative L2 mean" in scored.out[-1]


def test_failed_voids_are_named_and_left_out(tmp_path, capsys, monkeypatch):
    options = ["generate", "elasticity-quick", "--samples", "16", "--set", "problem.resolution=12",
               "--set", "span=0.35", "--workers", "1"]  # fmt: skip
    refused = call(capsys, monkeypatch, *options, "--out", tmp_path / "no.zarr")
    assert refused.status == 1
    assert "the void leaves the cell" in refused.err[-1]
    out = tmp_path / "some.zarr"
    quietly(*options, "--out", out, "--skip-failed")
    assert 0 < len(open_sealed(str(out)).skipped) < 16
    assert verify(str(out)).faults == []


def test_a_void_beyond_the_cell_is_a_wrong_request(capsys, monkeypatch):
    refused = call(capsys, monkeypatch, "generate", "elasticity-quick", "--set", "least=0.5")
    assert refused.status == 2
    assert "least must be below 0.5" in refused.err[-1]
