"""Predictions of a trained operator as means over the symmetries of the square."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from operators import load_model
from operators.registry import build_operator
from operators.symmetries import DiagonalShifts, SquareSymmetries, square_mean
from operators.training.checkpoint import CheckpointError, load_checkpoint, saving_checkpoint
from operators.training.fit import Settings
from operators.training.losses import MeanSquare
from operators.transforms import Normalizer, Predictor
from pdegen.domains import Box, CellGrid, PeriodicGrid
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pipelines.config.experiment import Experiment, Symmetries
from pipelines.runs.checks import _check_settings, check_symmetries
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate
from pipelines.runs.training import train
from tests.pipelines.shapes import a_store

CPU = torch.device("cpu")


def experiment(mean, **changes):
    return Experiment.parse(
        {
            "name": "mean", "summary": "", "resolutions": [16],
            "data": {"recipe": "burgers-quick", "resolution": 16},
            "model": {"name": "fno", "width": 4, "depth": 1, "modes": 3},
            "training": {"epochs": 2, "batch": 4, "loss": {"name": "l2"},
                         "symmetries": {"square": True, "mean": mean}},
            **changes,
        },
        "experiment",
    )  # fmt: skip


def test_only_the_trained_operator_takes_the_mean(tmp_path):
    """The training and its scores are those without the mean; loaded models and scores have it."""
    store = a_store(str(tmp_path / "store"), Box.cell(16, 16))
    history = {
        mean: train(experiment(mean), store, tmp_path / str(mean), CPU) for mean in (False, True)
    }
    assert [(e.loss, e.score) for e in history[True]] == [(e.loss, e.score) for e in history[False]]
    models = {mean: load_model(tmp_path / str(mean) / "best.safetensors") for mean in history}
    pairs = Source(store, experiment(True)).samples("test", noise=None)
    batch, x = pairs.resident().all, pairs.points
    a, u = batch.a, batch.u
    expected = square_mean(lambda image: models[False].predict(image, x), a)
    torch.testing.assert_close(models[True].predict(a, x), expected)
    assert not torch.allclose(models[False].predict(a, x), expected, atol=1e-4)
    errors = (expected - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)
    found = evaluate(tmp_path / "True" / "best.safetensors", store, CPU).errors
    assert found == pytest.approx(errors.tolist(), rel=1e-5)


def test_records_without_new_symmetries_are_those_of_earlier_versions():
    kept = {"shift": False, "reflection": False, "square": True}
    for table in ({"square": True}, {"square": True, "mean": False, "diagonal": False}):
        dump = Symmetries.model_validate(table).model_dump(mode="json")
        assert dump == kept
        assert Symmetries.model_validate(dump) == Symmetries(square=True)
    averaged = Symmetries(square=True, mean=True)
    assert Symmetries.model_validate(averaged.model_dump(mode="json")) == averaged


def test_checkpoints_keep_the_mean_and_refuse_another(tmp_path):
    path = tmp_path / "m.safetensors"
    normalizers = Normalizer.identity(1), Normalizer.identity(1)
    model = {"name": "fno", "width": 4, "depth": 1, "modes": 3}
    described = {"operator": {"model": model, "in_channels": 1, "out_channels": 1, "dim": 2}}
    operator = build_operator(described["operator"])
    for mean in (False, True):
        saving_checkpoint(path, Predictor(operator, *normalizers, mean=mean), described)()
        assert load_checkpoint(path, build_operator)[0].mean is mean
    plain = Predictor(operator, *normalizers)
    saving_checkpoint(path, plain, {**described, "mean": "torus"})()
    with pytest.raises(CheckpointError, match="torus"):
        load_checkpoint(path, build_operator)


def test_vorticity_states_the_symmetry_that_its_trainings_draw(tmp_path):
    assert set(load_recipe("ns-1e-3").problem.physics().symmetries) == DiagonalShifts.names
    for stated, message in ((("square",), "has no diagonal-shift, known: square"), ((), None)):
        name = "".join(stated) or "none"
        store = a_store(
            str(tmp_path / name), Box.periodic(16, 16), physics={"symmetries": list(stated)}
        )
        source = Source(store, experiment(False))
        with pytest.raises(SchemaError, match=message) if message else nullcontext():
            check_symmetries(source, DiagonalShifts())


def test_a_square_may_have_any_side_and_centre():
    settings = Settings(MeanSquare(), 1, 2, augment=SquareSymmetries())
    for grid, message in (
        ((CellGrid(6, 5.0, -2.5),) * 2, ""),
        ((CellGrid(6, 2.0), CellGrid(6, 2.0, 1.0)), ""),
        ((CellGrid(6, 2.0), CellGrid(6, 3.0)), "the same points along both axes"),
        ((PeriodicGrid(6, 2.0),) * 2, r"points symmetric in \(0, 1\)"),
    ):
        domain = Box(grid)
        pairs = SimpleNamespace(
            domain=domain, dim=2, points=torch.from_numpy(domain.points).float()
        )
        with pytest.raises(ValueError, match=message) if message else nullcontext():
            _check_settings(settings, pairs)
