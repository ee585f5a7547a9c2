"""A learned gradient descent: what it learns, what it is made of, and how it goes on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.training.fit import Stopped
from pdegen.inverse.misfit_gradient import MisfitGradient
from pdegen.making.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pipelines.declared.experiment import load_experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.runs.unrolled import Unrolled
from pipelines.studies.noise import Cell, NoiseStudy
from pipelines.studies.runner import How

CPU = torch.device("cpu")
DATA = {"samples": 112, "shard": 112, "resolution": 13, "modes": 16, "refinement": 1,
        "train": 96, "validation": 8, "test": 8}  # fmt: skip
OVERRIDES = {
    "data.resolution": 13, "data.target_resolution": 5, "resolutions": [13], "model.width": 8,
    "model.depth": 1, "model.feedforward": 8, "model.heads": 2, "training.batch": 4,
    "training.epochs": 3, "noise.level": [0.0, 0.1],
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    recipe = load_recipe("darcy-quick").with_overrides(DATA)
    return generate(recipe, str(tmp_path_factory.mktemp("data") / "d.zarr"), workers=1).url


@pytest.fixture(scope="module")
def experiment():
    overrides = OVERRIDES | {f"data.overrides.{key}": value for key, value in DATA.items()}
    return load_experiment("darcy-inverse-quick").with_overrides(overrides)


@pytest.fixture(scope="module")
def trained(experiment, store, tmp_path_factory):
    scheme = Unrolled(experiment, store, tmp_path_factory.mktemp("unrolled") / "u", 2)
    scheme.train()
    return scheme


def error(scheme, level):
    """Mean relative error on test samples, which no training has seen."""
    source = replace(scheme.source, at=level)
    pairs, inversion = source.noisy("test"), scheme.inversion()
    deviation = level * source.deviation(pairs)
    data, truth = (v[..., 0].double().numpy() for v in (pairs.a, pairs.u))
    found = np.stack([inversion(d, deviation).a for d in data])
    errors = np.linalg.norm(found - truth, axis=(1, 2)) / np.linalg.norm(truth, axis=(1, 2))
    return float(errors.mean())


def test_training_lowers_the_error_on_held_out_samples(trained):
    truth = trained.source.clean("test").u[..., 0].double().numpy()
    mean = trained.source.clean("train").u[..., 0].double().numpy().mean(axis=0)
    start = np.mean(np.linalg.norm(truth - mean, axis=(1, 2)) / np.linalg.norm(truth, axis=(1, 2)))
    one = replace(trained, stages=1)
    first, second = error(one, 0.01), error(trained, 0.01)
    assert second < first < 0.9 * start
    assert trained.inversion()(np.zeros((13, 13)), np.zeros((13, 13))).solves == 4


def test_without_the_gradient_it_learns_nothing_of_the_sample(
    trained, experiment, store, tmp_path, monkeypatch
):
    """A planted fault: then all samples look alike."""

    def none(self, p, d):
        return 1e-3 * np.random.default_rng(0).standard_normal(p.shape)

    monkeypatch.setattr(MisfitGradient, "__call__", none)
    blind = Unrolled(experiment, store, tmp_path / "u", 1)
    blind.train()
    without = error(blind, 0.01)
    monkeypatch.undo()
    assert error(trained, 0.01) < 0.8 * without


def test_a_stopped_training_goes_on_to_the_same_bits(trained, experiment, store, tmp_path):
    scheme, asked = Unrolled(experiment, store, tmp_path / "u", 2), []

    def stop():
        asked.append(1)
        return len(asked) == 3 * 24 + 30  # in the second epoch of the second stage

    with pytest.raises(Stopped):
        scheme.train(stop=stop)
    assert not scheme.finished()
    kept = scheme.checkpoint(0).stat().st_mtime_ns
    scheme.train()
    assert scheme.checkpoint(0).stat().st_mtime_ns == kept
    assert scheme.finished()
    assert scheme.digest == trained.digest
    scheme.train(stop=lambda: pytest.fail("trained again"))


def test_a_damaged_stage_is_trained_again(experiment, store, tmp_path):
    few = experiment.with_overrides({"data.samples": 8, "training.epochs": 1})
    scheme = Unrolled(few, store, tmp_path / "u", 1)
    scheme.train()
    path, digest = scheme.checkpoint(0), scheme.digest
    right = path.read_bytes()
    path.write_bytes(right[:-1] + b"x")
    assert not scheme.finished()
    scheme.train()
    assert scheme.finished()
    assert scheme.digest == digest
    other = replace(scheme, experiment=few.with_overrides({"training.lr": 1e-3}))
    assert not other.finished()


@pytest.mark.parametrize(
    ("stages", "level", "message"),
    [(11, [0.0, 0.1], "1 to 10 stages, got 11"), (-1, [0.0, 0.1], "1 to 10 stages, got -1"),
     (2, 0.1, "needs a range of levels")],
)  # fmt: skip
def test_impossible_schemes_are_refused(experiment, store, tmp_path, stages, level, message):
    with pytest.raises(SchemaError, match=message):
        Unrolled(experiment.with_overrides({"noise.level": level}), store, tmp_path / "u", stages)


def test_a_study_has_it_beside_other_methods(experiment, store, tmp_path):
    few = experiment.with_overrides({"noise.level": 0.1, "data.samples": 12, "training.epochs": 1})
    study = NoiseStudy(few, store, tmp_path / "s", (0.1,), (0.05,), 1, 2, (1.0, 3.0),
                       ("level set",), 1)  # fmt: skip
    for cut in ({"cells": 9}, {"experiment": few.with_overrides({"noise.kind": "sensors"})}):
        with pytest.raises(SchemaError, match="unrolled takes data at all points of its cells"):
            replace(study, **cut)
    study.run(CPU)
    write_noise_report(study, CPU)
    row = study.row(Cell("unrolled, 1 stage", at=0.05), How(CPU))
    assert row.solves == 2
    assert len(row.errors) == 2
    part = Cell("unrolled, 1 stage", at=0.05)
    found = study.inversions.invert("unrolled, 1 stage", 1.0, study.data(part)).fields(5)
    expected = np.linalg.norm(found - study.truth[:2], axis=(1, 2))
    assert row.errors == pytest.approx(expected / np.linalg.norm(study.truth[:2], axis=(1, 2)))
    told = study.row(Cell("unrolled, 1 stage", at=0.05, told=3.0), How(CPU))
    assert told.errors != row.errors
    page = (study.folder / "report.html").read_text()
    for words in ("Unrolled, 1 stage", "trained at levels (0.0, 0.1)", "--unrolled 1"):
        assert words in page
    before = row.made_from
    again = replace(study)
    again.run(CPU, resume=True)
    assert again.row(Cell("unrolled, 1 stage", at=0.05), How(CPU)).made_from == before
