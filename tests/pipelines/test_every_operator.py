"""`pdegen train --model X` for every operator on small and odd grids: it starts, or one line says
what does not fit."""

import numpy as np
import pytest
import torch

from operators.registry import OPERATORS
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import asked_for
from pipelines.runs.checks import check_applies, checked_operator
from pipelines.runs.data import Source
from pipelines.runs.training import train
from tests.pipelines.command import call

SHAPES = {
    "nodal": (19, 26), "cell": (16, 16), "periodic": (64,), "cloud": (60,), "seven": (7,),
    "eight": (8, 8), "two": (2,),
}  # fmt: skip
CPU = torch.device("cpu")
PLANE = {"galerkin-transformer-2d", "scot"}
ON_GRIDS = {
    "cno", "f-fno", "factformer", "fno", "galerkin-transformer-2d", "ht-net", "linear-no", "lrsa",
    "lsm", "mwt", "neuraloperator", "scot", "transolver", "u-fno", "unet", "xd",
}  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    urls: dict[str, str] = {}
    for name, shape in SHAPES.items():
        a, u = np.random.default_rng(0).standard_normal((2, 24, *shape))
        points = np.random.default_rng(1).uniform(size=(60, 2))
        np.savez(folder / "own.npz", a=a, u=u, spots=points)
        cloud = {"points": "spots"} if name == "cloud" else {}
        grid = {"seven": "nodal", "eight": "cell", "two": "cell"}.get(name, name)
        splits = {"train": 16, "validation": 4, "test": 4}
        urls[name] = str(folder / f"{name}.zarr")
        options = ImportOptions("a", "u", grid, splits, **cloud)
        import_files([folder / "own.npz"], urls[name], options)
    return urls


@pytest.mark.parametrize("grid", SHAPES)
def test_operators_fit_the_grid_or_say_in_one_line_what_does_not(stores, grid):
    store, refusals = open_sealed(stores[grid]), dict[str, str]()
    classes = {name: OPERATORS[name].operator for name in OPERATORS.known}
    shipped = [name for name, of in classes.items() if of.__module__.startswith("operators.")]
    assert len(shipped) == 33
    for name in shipped:
        try:
            experiment = asked_for(None, name, store)
            pairs = Source(store, experiment).samples("train", "training", device=CPU)
            checked_operator(experiment, pairs)
        except SchemaError as error:
            refusals[name] = str(error)
    expected = ON_GRIDS if grid == "cloud" else PLANE if len(SHAPES[grid]) == 1 else set[str]()
    assert refusals.keys() == expected
    for text in refusals.values():
        assert "supports domains of dimension 2" in text or "not cloud ones" in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("grid", "loss"), [("nodal", "flow"), ("cell", "flow"), ("nodal", "gaussian")]
)
def test_every_operator_without_a_basis_can_state_an_uncertainty(stores, grid, loss):
    refusals = dict[str, str]()
    for name in OPERATORS.known:
        base = asked_for(None, name, open_sealed(stores[grid]))
        experiment = base.with_overrides({"training.loss": {"name": loss}})
        source = Source(stores[grid], experiment)
        try:
            check_applies(source)
            checked_operator(experiment, source.samples("train", "training", device=CPU))
        except SchemaError as error:
            refusals[name] = str(error)
    assert refusals.keys() == {"pod-deeponet"}
    assert "needs an operator without a basis of the targets" in refusals["pod-deeponet"]


@pytest.mark.parametrize("name", ["unet", "u-fno", "cno", "lsm"])
def test_a_batch_norm_of_a_single_value_is_refused(stores, name, tmp_path, capsys, monkeypatch):
    words = ("train", "--data", stores["two"], "--model", name, "--set", "training.epochs=1")
    done = call(capsys, monkeypatch, *words, "--set", "training.batch=1", "--out", tmp_path / "r")
    assert done.status == 2
    assert done.err[-1].endswith("so training.batch must be at least 2, got 1")
    assert not (tmp_path / "r").exists()
    two = asked_for(None, name, open_sealed(stores["two"]))
    small = two.with_overrides({"training.epochs": 1, "training.batch": 2})
    train(small, stores["two"], tmp_path / "s", CPU)


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["nodal", "cell", "periodic", "cloud"])
def test_every_operator_trains(stores, grid, tmp_path):
    for name in OPERATORS.known:
        if name in (ON_GRIDS if grid == "cloud" else PLANE if grid == "periodic" else ()):
            continue
        experiment = asked_for(None, name, open_sealed(stores[grid]))
        overrides = {"training.epochs": 1} | ({"model.basis": 8} if name == "pod-deeponet" else {})
        epochs = train(experiment.with_overrides(overrides), stores[grid], tmp_path / name, CPU)
        assert np.isfinite(epochs[-1].score), name


def test_smaller_settings_are_said_unless_they_were_given(stores, tmp_path, capsys, monkeypatch):
    words = ("train", "--data", stores["cell"], "--model", "fno", "--set", "training.epochs=1")
    done = call(capsys, monkeypatch, *words, "--out", tmp_path / "r")
    assert done.status == 0
    line = "pdegen: model.modes=8 in place of 16, as the points of the data require"
    assert line in done.err
    given = call(capsys, monkeypatch, *words, "--set", "modes=4", "--out", tmp_path / "s")
    assert given.status == 0
    assert not [line for line in given.err if "in place of" in line]
    wrong = call(capsys, monkeypatch, *words, "--set", "model.modes=9", "--out", tmp_path / "t")
    assert wrong.status == 2
    assert wrong.err[-1].endswith("9 modes need a grid of at least 18 points, got 16 x 16")
    assert not (tmp_path / "t").exists()
