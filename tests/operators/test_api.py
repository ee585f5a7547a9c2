"""`import operators` and `import pipelines`: their public functions."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import operators
import pdegen
import pipelines
from operators import Batch, CheckpointError
from operators.api import TrainedModel, positions
from operators.models.fno import FNO
from operators.training.checkpoint import Grids, saving_checkpoint
from operators.transforms import Normalizer, Predictor
from pdegen.schema import SchemaError

SMALL = {"problem.solver.resolution": 64, "modes": 31, "shard": 5, "resolution": 32}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("api") / "store.zarr"
    return pdegen.generate("burgers-quick", samples=16, overrides=SMALL, out=out)


@pytest.fixture(scope="module")
def checkpoint(store: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    overrides = {"model.width": 8, "model.modes": 4, "epochs": 1, "batch": 4}
    return pipelines.train(model="fno", data=store, out=out, overrides=overrides)


def test_every_public_name_is_there_and_described() -> None:
    for package in (operators, pipelines):
        for name in package.__all__:
            assert getattr(package, name).__doc__
        with pytest.raises(AttributeError, match="has no attribute 'trian'"):
            package.trian  # noqa: B018


def test_importing_it_imports_no_library() -> None:
    program = (
        "import sys, operators, pipelines;"
        "sys.exit(str({'numpy', 'torch', 'xarray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == "set()"


def test_pairs_are_a_dataset_wherever_their_values_are(store: str) -> None:
    streamed, resident = operators.open_pairs(store, "train"), operators.read_pairs(store, "train")
    for pairs in (streamed, resident, replace(resident, length=40)):
        assert isinstance(pairs, Dataset)
        for place in (0, 7, len(resident) - 1):
            torch.testing.assert_close(pairs[place]["a"], resident.a[place], rtol=0, atol=0)
            torch.testing.assert_close(pairs[place]["u"], resident.u[place], rtol=0, atol=0)
        collected = next(iter(DataLoader(pairs, batch_size=3)))
        torch.testing.assert_close(Batch(**collected).u, resident.u[:3], rtol=0, atol=0)
    assert torch.equal(streamed[-1]["u"], resident.u[-1])
    with pytest.raises(IndexError, match="12 samples, got index 12"):
        streamed[12]


def test_a_loader_shuffles_each_epoch_anew_or_keeps_the_order(store: str) -> None:
    pairs = operators.open_pairs(store, "train")
    loader = pairs.loader(4, seed=1)
    assert isinstance(loader, DataLoader)
    epochs = [torch.cat([batch.a for batch in loader]) for _ in range(2)]
    assert len(loader) == 3
    assert epochs[0].shape == (12, 32, 1)
    assert not torch.equal(*epochs)
    assert torch.equal(torch.cat([b.a for b in pairs.loader(4, seed=1)]), epochs[0])
    inorder = pairs.loader(5, shuffle=False)
    assert len(inorder) == len(list(inorder)) == 3
    whole = operators.read_pairs(store, "train").a
    assert torch.equal(torch.cat([batch.a for batch in inorder]), whole)
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        pairs.loader(0)


def test_no_samples_have_no_prediction() -> None:
    identity = Normalizer.identity(1)
    model = TrainedModel(Predictor(FNO(modes=4), identity, identity).eval(), {})
    with pytest.raises(ValueError, match=r"at least one sample, got a of shape \(0, 16, 1\)"):
        model.predict(np.ones((0, 16, 1)), torch.arange(16)[:, None] / 16)


def test_a_loaded_model_predicts_as_the_predictor_does(store: str, checkpoint: Path) -> None:
    test = operators.read_pairs(store, "test")
    model = operators.load_model(checkpoint)
    assert model.description["experiment"]["model"]["name"] == "fno"
    with torch.no_grad():
        expected = model.predictor(test.a, test.x)
    assert torch.equal(model.predict(test.a, test.x), expected)
    many = test.a.repeat(101, 1, 1)
    torch.testing.assert_close(model.predict(many, test.x), expected.repeat(101, 1, 1))
    values = model.predict(test.a.double().numpy(), test.x.numpy())
    assert isinstance(values, np.ndarray)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


def test_the_points_of_the_training_are_the_default(store: str, checkpoint: Path) -> None:
    test = operators.read_pairs(store, "test")
    model = operators.load_model(checkpoint)
    assert torch.equal(model.predict(test.a), model.predict(test.a, test.x))
    assert torch.equal(model.points(), test.x)
    assert torch.equal(model.points(64), torch.arange(64)[:, None] / 64)
    with pytest.raises(ValueError, match=r"a has 16 points, the training had 32: .*points\(16\)"):
        model.predict(test.a[:, ::2])
    with pytest.raises(ValueError, match="give the positions x"):
        TrainedModel(model.predictor, {}).predict(test.a)
    with pytest.raises(ValueError, match="expected 1 numbers of points, got 2"):
        model.points(8, 8)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("a", "message"),
    [
        (None, "a must be an array of numbers"),
        ("a", "a must be an array of numbers"),
        (np.ones((2, 32, 1), complex), "a must be real"),
        (np.ones((32, 1)), "a must have the shape"),
        (np.ones((2, 32, 2)), "expected input of shape"),
    ],
)
def test_inputs_that_are_no_functions_are_refused(
    checkpoint: Path, a: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        operators.load_model(checkpoint).predict(a)


def test_a_subsample_of_cells_keeps_its_points_and_the_box(tmp_path: Path) -> None:
    store = pdegen.generate("darcy-quick", samples=8, resolution=43, out=tmp_path / "s.zarr")
    pairs = operators.read_pairs(store, "train", 22, target_resolution=15)
    recorded = Grids.of(pairs)
    assert recorded is not None
    grids = Grids.described(json.loads(json.dumps(recorded.description())))
    assert torch.equal(positions(grids.x), pairs.x)
    assert grids.y is not None
    assert torch.equal(positions(grids.y), pairs.y)
    assert torch.equal(positions(grids.on((43,))), operators.read_pairs(store, "train").x)


@pytest.mark.usefixtures("unchecked")
def test_inputs_of_another_shape_are_refused(store: str, checkpoint: Path) -> None:
    test = operators.read_pairs(store, "test")
    with pytest.raises(ValueError, match="a must have the shape"):
        operators.load_model(checkpoint).predict(test.a[..., 0], test.x)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "fnoo"}, "unknown model 'fnoo': known: galerkin-transformer"),
        ({"widht": 3}, "FNO has no argument widht"),
        ({"depth": 10**9}, "depth must be at most 1,000"),
        ({"padding": float("inf")}, "padding must be finite"),
        ({"width": 2**22}, "does not fit its description"),  # which takes no memory
    ],
)
def test_impossible_descriptions_are_refused(tmp_path: Path, changed: dict, message: str) -> None:
    model = {"name": "fno", "width": 8, "modes": 4, **changed}
    described = {"model": model, "in_channels": 1, "out_channels": 1, "dim": 1}
    small = Predictor(FNO(width=8, modes=4), Normalizer.identity(1), Normalizer.identity(1))
    saving_checkpoint(tmp_path / "m.safetensors", small, {"operator": described})()
    with pytest.raises(CheckpointError, match=message):
        operators.load_model(tmp_path / "m.safetensors")


def test_an_experiment_is_run_to_its_report(store: str, tmp_path: Path) -> None:
    overrides = {
        "data.resolution": 32, "resolutions": [32], "epochs": 1, "batch": 4, "model.width": 8,
        "depth": 1, "model.modes": 3,
    }  # fmt: skip
    report = pipelines.run("burgers-quick", data=store, out=tmp_path / "run", overrides=overrides)
    assert report.name == "report.html"
    assert (tmp_path / "run" / "best.safetensors").exists()


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="name an experiment, or an operator and its data"):
        pipelines.train(out=tmp_path / "run")
    with pytest.raises(SchemaError, match="model fno needs a store"):
        pipelines.train(model="fno", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
