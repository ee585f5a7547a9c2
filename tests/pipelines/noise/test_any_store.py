"""Noise studies of stores whose equation is somebody's own, or offers no classical method."""

import csv

import pytest

from pdegen.generation.generate import generate
from pdegen.plugins import load_plugin
from pdegen.recipe import load_recipe
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import load_experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.studies.inversions import Cell
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution
from tests.pipelines.command import everything
from tests.pipelines.noise.conftest import CPU, DATA, MODEL, a_study
from tests.plugins import in_another_process

HOW = Execution(CPU)


def error(study, method, at):
    return study.row(Cell(method, at=at), HOW).mean


def test_ones_own_equation_is_inverted_by_the_map_that_it_states(
    root, pdegen, tmp_path, monkeypatch
):
    examples = root / "docs/examples"
    own = ("--plugin", examples / "my_equation.py")
    small = ("samples=40", "train=24", "validation=8", "test=8", "shard=40", "modes=8",
             "resolution=32")  # fmt: skip
    sets = [word for setting in small for word in ("--set", setting)]
    store, recipe = tmp_path / "h.zarr", examples / "my_heat.toml"
    made = pdegen("generate", recipe, *own, *sets, "--out", store, "--workers", 1)
    assert made.status == 0, made.err
    text = (examples / "my_experiment.toml").read_text("utf-8")
    (tmp_path / "mine.toml").write_text(
        text.replace("docs/examples/my_heat.toml", str(recipe)), "utf-8"
    )
    words = ("data.input=u", "data.target=a", "data.resolution=32", "resolutions=[32]",
             "model.width=4", "model.modes=4", "epochs=1", "batch=8", "shift=false",
             "noise={level=0.05}")  # fmt: skip
    request = ["study", "noise", tmp_path / "mine.toml", *own, "--data", store, "--out",
               tmp_path / "s", "--train-levels", "0.05", "--test-levels", "0.05",
               *(word for setting in words for word in ("--set", setting))]  # fmt: skip
    refused = pdegen(*request, "--method", "level set")
    assert (refused.status, len(refused.err)) == (2, 1)
    assert "unknown method 'level set': known: 'Tikhonov', 'none'" in refused.err[0]
    outcome = pdegen(*request)
    assert outcome.status == 0, outcome.err
    lines = csv.DictReader((tmp_path / "s" / "measures.csv").read_text().splitlines())
    found = {(of["method"], of["level"], of["measure"]): float(of["mean"]) for of in lines}
    assert found["Tikhonov", "0.05", "errors"] < 0.5 * found["constant", "0.05", "errors"]
    assert 0.5 < found["Tikhonov", "0.05", "misfit"] < 1.5
    in_another_process()
    code = (examples / "my_equation.py").read_text("utf-8")
    edited = code.replace("return self.solution\n", "return lambda f: 2 * self.solution(f)\n")
    assert edited != code
    (tmp_path / "my_equation.py").write_text(edited, "utf-8")
    request[request.index(examples / "my_equation.py")] = tmp_path / "my_equation.py"
    before = everything(tmp_path)
    for more in (("--resume",), ("--overwrite",), ("--overwrite", "--method", "none")):
        in_another_process()
        refused = pdegen(*request, *more)
        assert (refused.status, len(refused.err)) == (2, 1)
        assert "equation heat comes from the file my_equation.py (SHA-256 " in refused.err[0]
        assert f"{tmp_path}/my_equation.py is another version of it" in refused.err[0]
    assert everything(tmp_path) == before
    in_another_process()
    keys = set()
    for changed in ("", "# edited\n", ""):
        (tmp_path / "my_equation.py").write_text(code + changed, "utf-8")
        load_plugin(str(tmp_path / "my_equation.py"))
        learned = load_experiment(str(tmp_path / "mine.toml")).with_overrides(
            {"data.input": "u", "data.target": "a", "data.resolution": 32, "resolutions": [32],
             "training.symmetries.shift": False, "noise": {"level": 0.05}}
        )  # fmt: skip
        study = NoiseStudy(learned, str(store), tmp_path / "s", (0.05,), (0.05,), 1)
        with monkeypatch.context() as patch:
            patch.setattr(
                "pdegen.generation.generate.fingerprint_of",
                lambda *_: open_sealed(str(store)).metadata.fingerprint,
            )
            keys.add(study.digest(Cell("Tikhonov", at=0.05)))
    assert len(keys) == 2
    in_another_process()


def test_a_log_normal_coefficient_is_inverted(experiment, tmp_path):
    recipe = load_recipe("darcy-lognormal").with_overrides(DATA)
    url = generate(recipe, str(tmp_path / "d.zarr"), workers=1).url
    own = experiment.with_overrides({"data.recipe": "darcy-lognormal"})
    words = {"seeds": 1, "inversion_samples": 4, "assumed_levels": (1.0,)}
    study = a_study(own, url, tmp_path / "s", (0.05,), (0.05,), **words)
    study.run(CPU)
    write_noise_report(study, CPU)
    errors = [error(study, name, 0.05) for name in ("maximum a posteriori", "Tikhonov", "constant")]
    assert errors == sorted(errors)
    row = study.row(Cell("maximum a posteriori", at=0.05), HOW)
    assert 0.6 < sum(row.scores["points"]) / 4 < 1  # of 90 % intervals
    assert (study.folder / "pictures" / "uncertainty.svg").exists()


@pytest.fixture(scope="module")
def pipes(tmp_path_factory):
    small = {"samples": 8, "shard": 8, "train": 4, "validation": 2, "test": 2}
    recipe = load_recipe("pipe-quick").with_overrides({**small, "problem.resolution": 33})
    return generate(recipe, str(tmp_path_factory.mktemp("data") / "p.zarr"), workers=1).url


@pytest.mark.parametrize("on", ["inputs", "targets"])
def test_a_mesh_has_no_classical_method(pipes, tmp_path, on):
    experiment = load_experiment("pipe-transolver-quick").with_overrides(
        {"task.inputs": ["u"], "task.targets": ["y"], "noise": {"level": 0.1, "on": on},
         "training.epochs": 1, "training.batch": 2, "model.width": 8, "model.depth": 1,
         "model.heads": 2, "model.slices": 4, "model.feedforward": 8}
    )  # fmt: skip
    levels = (0.0, 0.1) if on == "inputs" else (0.0,)
    study = NoiseStudy(experiment, pipes, tmp_path / "s", (0.1,), levels, 1)
    study.run(CPU)
    write_noise_report(study, CPU)
    assert study.classical == []
    assert "does not learn u -> a" in study.inversions.absent
    page = (study.folder / "report.md").read_text()
    assert "u on 17² points → y on" in page
    assert (study.folder / "pictures" / "reconstructions-at-0.svg").exists()


def test_no_classical_method_is_a_choice(experiment, store, tmp_path):
    study = a_study(experiment, store, tmp_path / "s", (0.1,), (0.1,), only=("none",))
    assert (study.classical, study.corrected, study.inversions.absent) == ([], [], "")
    assert MODEL["data.resolution"] == study.source.samples("test").domain.shape[0]
