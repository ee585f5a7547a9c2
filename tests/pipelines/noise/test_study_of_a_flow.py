"""A noise study of an equation without phases: the initial value of Burgers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.config.experiment import load_experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.studies.inversions import Cell
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution

CPU = torch.device("cpu")
DATA = {"samples": 20, "shard": 20, "problem.resolution": 32, "initial.modes": 31,
        "problem.solver.resolution": 128, "splits.train": 12, "splits.validation": 4,
        "splits.test": 4}  # fmt: skip
MODEL = {"data.resolution": 32, "resolutions": [32], "model.width": 8, "model.feedforward": 8,
         "model.decoder_width": 8, "model.heads": 2, "training.batch": 4,
         "training.epochs": 2}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    recipe = load_recipe("burgers-quick").with_overrides(DATA)
    return generate(recipe, str(tmp_path_factory.mktemp("data") / "b.zarr"), workers=1).url


@pytest.fixture(scope="module")
def study(store, tmp_path_factory):
    experiment = load_experiment("burgers-inverse-quick").with_overrides(
        {**MODEL, "data.overrides": DATA}
    )
    folder = tmp_path_factory.mktemp("study") / "s"
    found = NoiseStudy(experiment, store, folder, (0.1,), (0.0, 0.1), 1, inversion_samples=2)
    found.run(CPU)
    write_noise_report(found, CPU)
    return found


def test_the_classical_methods_beat_the_constant(study):
    errors = {
        name: np.mean(study.row(Cell(name, at=0.1), Execution(CPU)).errors)
        for name in ("constant", "maximum a posteriori", "Tikhonov")
    }
    assert errors["constant"] == pytest.approx(1, abs=0.1)  # the law has no mean
    assert errors["maximum a posteriori"] < 0.4
    assert errors["Tikhonov"] < 0.4


def test_errors_and_coverage_are_those_of_the_estimates(study):
    part = Cell("maximum a posteriori", at=0.1)
    row = study.row(part, Execution(CPU))
    found = study.inversions.invert(part.method, 1.0, study.data(part)).estimates
    for i, (estimate, truth) in enumerate(zip(found, study.truth[:2], strict=True)):
        off = estimate.a - truth
        assert row.errors[i] == pytest.approx(np.linalg.norm(off) / np.linalg.norm(truth))
        inside = np.mean(abs(off) <= 1.6448536 * estimate.std)
        assert row.scores["points"][i] == pytest.approx(inside)
        assert 0.5 < row.scores["misfit"][i] < 1.5


def test_the_report_has_no_section_of_phases_and_draws_curves(study):
    page = (study.folder / "report.html").read_text()
    assert "Hausdorff" not in page
    assert "32 points → a on the same" in page
    assert "Coverage of 90% intervals of points" in page
    assert (study.folder / "pictures" / "reconstructions-at-0-1.svg").exists()


def test_cells_are_refused_where_there_are_none(pdegen, store):
    sets = [word for key, value in MODEL.items() for word in ("--set", f"{key}={value}")]
    outcome = pdegen("study", "noise", "burgers-inverse-quick", *sets, "--data", store, "--out",
                     "s", "--cells", "16")  # fmt: skip
    assert outcome.status == 2
    (line,) = outcome.err
    assert "holds no averages over cells" in line
    assert not Path("s").exists()
