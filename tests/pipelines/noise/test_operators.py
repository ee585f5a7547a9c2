"""Noise studies of several operators, and of noise on the targets."""

import json
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from pdegen.files import read_json
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.config.experiment import Experiment, InputNoise, load_experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.runs.data import NoisyTargets, Source
from pipelines.runs.folder import RunError
from pipelines.studies import runner
from pipelines.studies.inversions import Cell, operator_experiments
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution
from tests.once import once
from tests.pipelines.noise.test_study_of_a_flow import DATA, MODEL

CPU = torch.device("cpu")
HOW = Execution(CPU)
FNO = {"fno.width": 4, "fno.depth": 1, "fno.modes": 3}
BOTH = ("galerkin-transformer", "fno")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    recipe = load_recipe("burgers-quick").with_overrides(DATA)
    folder = once(
        tmp_path_factory,
        "noise-flow",
        lambda folder: generate(recipe, str(folder / "b.zarr"), workers=1),
    )
    return str(folder / "b.zarr")


def a_study(store, folder, models=BOTH, train=(0.0, 0.1), test=(0.0, 0.1), **changes):
    """A study of Burgers without classical methods."""
    own = load_experiment("burgers-inverse-quick").with_overrides({"data.overrides": DATA})
    fno = {key: value for key, value in FNO.items() if "fno" in models}
    declared = {key: v for key, v in MODEL.items() if models != ("fno",) or "model." not in key}
    experiment, operators = operator_experiments(own, models, {**declared, **fno, **changes})
    return NoiseStudy(
        experiment, store, folder, train, test, 1, only=("none",), operators=operators
    )


@pytest.fixture(scope="module")
def one(store, tmp_path_factory):
    """A finished study of one operator, as older versions wrote it."""
    study = a_study(store, tmp_path_factory.mktemp("one") / "s", ())
    study.run(CPU)
    return study


def test_a_finished_study_gets_an_operator_without_training_the_others(one, store, tmp_path):
    folder = shutil.copytree(one.folder, tmp_path / "s")
    before = {path: path.read_bytes() for path in folder.glob("**/*.safetensors")}
    rows = {path: path.read_bytes() for path in (folder / "cells").iterdir()}
    trained, train = list[str](), runner.train_part
    both = a_study(store, folder)
    assert pickle.loads(pickle.dumps(both)) == both  # as worker processes get it

    def noted(experiment, *rest, **words):
        trained.append(experiment.model.name)
        return train(experiment, *rest, **words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "train_part", noted)
        study = both
        study.run(CPU, resume=True)
    assert trained == ["fno", "fno"]
    assert all(path.read_bytes() == content for path, content in {**before, **rows}.items())
    write_noise_report(study, CPU)
    page = (folder / "report.md").read_text()
    for name in ("galerkin-transformer trained at 0.1", "fno trained at 0", "constant"):
        assert name in page
    assert "--model galerkin-transformer --model fno --set fno.model.width=4" in page
    assert {path.stem for path in (folder / "pictures").glob("levels*.svg")} == {
        "levels-trained-at-0", "levels-trained-at-0-1",
    }  # fmt: skip
    other = a_study(store, folder, **{"fno.width": 6})
    with pytest.raises(RunError, match="holds a study of another fno"):
        other.run(CPU, resume=True)
    alone = a_study(store, folder, ())  # leaves the other operator recorded
    alone.run(CPU, resume=True)
    assert list(read_json(folder / "study.json")["operators"]) == ["fno"]


def test_an_operator_has_the_errors_of_a_study_of_its_own(one, store, tmp_path):
    study = a_study(store, tmp_path / "s", ("fno",), (0.1,), (0.1,))
    study.run(CPU)
    assert [model.operator for model in study.models] == ["fno"]
    part = Cell(0.1, at=0.1, operator="fno")
    predicted, truth = study.predicted(part, CPU), study.truth
    errors = np.linalg.norm(predicted - truth, axis=1) / np.linalg.norm(truth, axis=1)
    assert study.row(part, HOW).errors == pytest.approx(errors.tolist(), rel=1e-6)


def forward(store, folder, **changes):
    words = {"data.input": "a", "data.target": "u", "noise.on": "targets"}
    return a_study(store, folder, train=(0.0, 0.5), test=(0.0,), **words, **changes)


def test_noise_on_targets_is_that_of_training_alone(store, tmp_path):
    study = forward(store, tmp_path / "s")
    experiment = study.training(Cell(0.5)).experiment
    source = Source(store, experiment)
    clean = source.samples("train", noise=None).resident()
    noisy = source.samples("train", "training").resident()
    assert torch.equal(clean.a, noisy.a)
    sigma = clean.u.double().std(dim=0, unbiased=False)
    share = (noisy.u - clean.u).double().div(sigma).std()
    assert float(share) == pytest.approx(0.5, rel=0.15)  # 384 values
    epochs = [next(noisy.batches(0, epoch, len(noisy))) for epoch in (0, 1)]
    ordered = [batch.u[batch.a[:, 0, 0].argsort()] for batch in epochs]
    assert torch.equal(*ordered)  # a label is measured once
    for split, purpose in (("validation", "selection"), ("test", "test")):
        pairs = source.samples(split, purpose).resident()
        assert torch.equal(pairs.u, source.samples(split, noise=None).resident().u)


def test_channels_of_targets_have_independent_noise():
    noise = InputNoise(level=0.5, on="targets")
    add = NoisyTargets(noise, np.ones((32, 2)), lambda samples: samples)
    both = add(np.zeros((64, 32, 2)) + np.random.default_rng(0).normal(size=32)[:, None],
               range(64), None)  # fmt: skip
    first, second = (both - both.mean(axis=0)).reshape(-1, 2).T
    assert first.std() > 0.1
    # 2048 independent pairs: four deviations of a correlation are 0.09
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.09


def test_noise_on_both_is_independent(store, tmp_path):
    study = forward(store, tmp_path / "s")
    both = study.experiment.with_overrides({"noise.on": "both", "noise.level": 0.5})
    source = Source(store, both)
    clean = source.samples("train", noise=None).resident()
    noisy = source.samples("train", "training").resident()
    a, u = noisy.a - clean.a, noisy.u - clean.u
    assert abs(float(torch.corrcoef(torch.stack([a.flatten(), u.flatten()]))[0, 1])) < 0.2
    assert float(u.std()) > 0


def test_a_stream_has_noise_on_targets(store, tmp_path):
    study = forward(store, tmp_path / "s")
    stream = {f"data.stream.overrides.{key}": value for key, value in DATA.items()}
    streamed = study.experiment.with_overrides(
        {"noise.level": 0.5, "data.epoch_samples": 8, "data.stream.recipe": "burgers-quick"}
    ).with_overrides(stream)
    clean = Source(store, streamed).samples("train", "training", noise=None)
    noisy = Source(store, streamed).samples("train", "training")
    before, after = (next(pairs.batches(0, 0, 8)) for pairs in (clean, noisy))
    assert torch.equal(before.a, after.a)
    assert not torch.equal(before.u, after.u)


def test_a_study_of_noisy_targets_draws_errors_against_the_training_level(store, tmp_path):
    study = forward(store, tmp_path / "s")
    study.run(CPU)
    write_noise_report(study, CPU)
    page = (study.folder / "report.md").read_text()
    assert "Validation and test targets" in page
    assert "With training targets of noise 0.5, fno has" in page
    assert {path.stem for path in (study.folder / "pictures").glob("levels*.svg")} == {"levels"}
    svg = (study.folder / "pictures" / "levels.svg").read_text()
    assert "noise level of the training targets" in svg


def test_the_default_of_noise_on_is_left_out_of_records():
    experiment = load_experiment("burgers-inverse-quick")
    assert "on" not in experiment.model_dump()["noise"]
    declared = json.loads(experiment.with_overrides({"noise.on": "targets"}).model_dump_json())
    assert Experiment.parse(declared, "again").noise.on == "targets"
    same = experiment.with_overrides({"noise.on": "inputs"})
    assert same.model_dump_json() == experiment.model_dump_json()


def test_the_level_of_noise_on_targets_is_none_of_the_inputs(store, tmp_path):
    study = forward(store, tmp_path / "s")
    with pytest.raises(Exception, match="noise on the targets of training samples alone"):
        study.experiment.at_level(0.2)
    assert replace(study, seeds=2).models[1].seed == 1
