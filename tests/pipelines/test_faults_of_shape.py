"""Shapes of data and models that were read, or trained on, and then not reported or drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial import Delaunay

from operators.data import DataError, Samples
from operators.data.opening import StoredVariable
from operators.norms import relative_l2
from operators.training.step import AS_WRITTEN
from operators.transforms import Predictor
from pdegen.domains import Box, CellGrid, Cloud, Curvilinear, Domain
from pdegen.files import read_json
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment, Normalization, domain_of
from pipelines.reports.pictures import plot_store
from pipelines.reports.report import write_report
from pipelines.runs.checks import check_resolutions, checked_operator
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate_run, trivial_scores
from pipelines.runs.finished import MEAN, TRIVIAL
from pipelines.runs.training import train
from pipelines.studies.cost import Steps
from tests.pipelines.conftest import learned
from tests.pipelines.shapes import a_store

CPU = torch.device("cpu")
MODELS = {
    "pit": {"name": "pit", "width": 8, "heads": 1, "latent": 8, "depth": 1},
    "transolver": {"name": "transolver", "width": 8, "heads": 1, "depth": 1, "slices": 4},
}


def mesh() -> np.ndarray:
    """Positions of 6 x 8 nodes of a quarter of a ring."""
    r, angle = np.meshgrid(np.linspace(1, 2, 6), np.linspace(0, np.pi / 2, 8), indexing="ij")
    return np.stack([r * np.cos(angle), r * np.sin(angle)], axis=-1)


RNG = np.random.default_rng(0)
STRETCHED = np.stack([mesh() * (1 + 0.1 * k) for k in range(12)])
PLACES = RNG.random((12, 30, 2))
SHAPES: dict[str, tuple[Domain, dict[str, Any]]] = {
    "circle": (Box.periodic(16), {}),
    "times on a circle": (Box.periodic(16), {"times": (0.1, 0.2, 0.3)}),
    "two channels on a line": (Box.nodal(17), {"channels": ("u", "v")}),
    "8 x 4 cells": (Box((CellGrid(8, 2.0), CellGrid(4))), {}),
    "times": (Box.cell(8, 8), {"times": (0.1, 0.2, 0.3)}),
    "times and channels": (
        Box.periodic(8, 8), {"times": (0.1, 0.2, 0.3), "channels": ("u_x", "u_y")}
    ),
    "cube": (Box.cell(4, 4, 4), {}),
    "mesh": (Curvilinear.of(mesh()), {"channels": ("u_x", "u_y")}),
    "moving mesh": (Curvilinear((6, 8), 2), {"positions": STRETCHED}),
    "cloud": (Cloud.of(PLACES[0], Delaunay(PLACES[0]).simplices), {}),
    "moving cloud": (
        Cloud((30,), 2), {"positions": PLACES, "counts": np.arange(19, 31), "times": (1.5, 2.5)}
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_store_of_any_shape_is_drawn(shape, tmp_path):
    domain, further = SHAPES[shape]
    store = a_store(str(tmp_path / "toy.zarr"), domain, **further)
    for sample in (None, 2):
        words = plot_store(store, sample, tmp_path / "toy.svg").read_text("utf-8")
        several = 4 if domain.dim > 1 else 6 if "channels" not in further else 3
        assert len(re.findall(r"sample \d+", words)) == (several if sample is None else 1)
        if domain.dim > 1:
            names = further.get("channels", ("u",))
            times = [f", t = {time}" for time in further.get("times", ())] or [""]
            shown = [f"{name}{time}" for name in names for time in times]
            assert all(f">{shown[k]}<" in words for k in (0, -1)) or len(shown) == 1
        assert "medium a" in words


@pytest.mark.parametrize(
    "shape", ["two channels on a line", "times and channels", "moving cloud",
              *(pytest.param(shape, marks=pytest.mark.slow) for shape in
                ("times on a circle", "8 x 4 cells", "moving mesh", "cloud"))],
)  # fmt: skip
def test_an_operator_is_trained_and_reported_on_any_shape(shape, tmp_path):
    domain, further = SHAPES[shape]
    store, run = a_store(str(tmp_path / "toy.zarr"), domain, **further), tmp_path / "run"
    own = {f"model.{key}": v for key, v in MODELS["transolver"].items() if key != "name"}
    if isinstance(domain, Cloud):
        own |= {"model.projection": "linear", "model.coordinates": "raw"}
    experiment = Experiment.on_store(store, "transolver").with_overrides(
        {**own, "training.epochs": 1}
    )
    train(experiment, store, run, CPU)
    evaluate_run(experiment, store, run, CPU)
    html = write_report(run, store, CPU).read_text("utf-8")
    assert (run / "pictures" / "predictions.svg").exists()
    assert (run / "pictures" / "error-by-time.svg").exists() == ("times" in further)
    main = read_json(run / "scores.json")["results"][0]
    times = [f", t = {time}" for time in further.get("times", ())] or [""]
    channels = [u + time for time in times for u in further.get("channels", ("u",))]
    assert list(main.get("channels", {"u": 0})) == channels
    assert ("steps" in main) == (len(further) == 2)
    assert all(name in html for name in channels)


@pytest.mark.parametrize("shape", ["torus", "ring"])
def test_what_a_domain_does_not_have_is_refused_before_training(shape, tmp_path):
    domain = {"torus": Box.periodic(8, 4), "ring": Curvilinear.of(mesh())}[shape]
    url = a_store(str(tmp_path / "data.zarr"), domain)
    content = Experiment.on_store(url, "pit").model_dump(mode="json") | {"model": MODELS["pit"]}
    lacking = [{"loss": {"name": "h1"}}, {"symmetries": {"square": True}}]
    if shape == "ring":
        lacking.append({"symmetries": {"shift": True}})
    for own in lacking:
        content |= {"training": {"loss": {"name": "l2"}, **own}}
        with pytest.raises(SchemaError, match="need"):
            train(Experiment.parse(content, shape), url, tmp_path / "run", CPU)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("n", "loss"), [((8, 8), "weighted-h1"), ((8, 16), "l2")])
def test_the_loss_that_follows_from_a_store_is_right_on_its_grid(tmp_path, n, loss):
    url = a_store(str(tmp_path / "data.zarr"), Box.cell(*n), physics={"loss_weight": "a"})
    assert Experiment.on_store(url, "fno").training.loss.name == loss


def test_numbers_of_a_sample_are_not_its_domain(tmp_path):
    url = a_store(str(tmp_path / "data.zarr"), Box.periodic(16), parameters=3)
    assert domain_of(open_sealed(url)) == Box.periodic(16)
    content = Experiment.on_store(url, "fno").model_dump(mode="json")
    content["task"] = {"kind": "map", "parameters": True}
    experiment = Experiment.parse(content, "parameters")
    assert learned(url, experiment).channels == (4, 1)
    content["training"]["symmetries"] = {"reflection": True}
    with pytest.raises(SchemaError, match="the sign of all inputs, parameters among them"):
        Experiment.parse(content, "parameters")


def test_channels_before_times_are_refused(tmp_path, monkeypatch):
    shape = {"times": (0.1, 0.2, 0.3), "channels": ("v", "w")}
    url = a_store(str(tmp_path / "data.zarr"), Box.periodic(16), **shape)
    store = open_sealed(url)
    array = store.array("u")
    assert array.dims == ("sample", "time", "channel", "x")
    swapped = replace(array, dims=("sample", "channel", "time", "x"))
    monkeypatch.setattr(Store, "arrays", {"u": swapped})
    with pytest.raises(DataError, match="u has the axes sample, channel, time, x: expected level"):
        StoredVariable.of(store, "u", None, ("x",))


def test_the_baseline_of_a_mesh_has_its_weights(tmp_path):
    url = a_store(str(tmp_path / "data.zarr"), Curvilinear.of(mesh()))
    experiment = Experiment.on_store(url, "pit")
    source = Source(url, experiment)
    test, mean = (
        source.samples("test", noise=None).resident(),
        source.samples("train", noise=None).resident().u.double().mean(dim=0),
    )
    assert test.weight is not None
    u, weight = test.u.double(), test.weight.double()[..., None]
    squares = [(weight * v.square()).flatten(1).sum(dim=1) for v in (mean - u, u)]
    expected = float((squares[0] / squares[1]).sqrt().mean())
    scores = trivial_scores(Source(url, experiment), tmp_path, torch.device("cpu"))
    found = {TRIVIAL[score.checkpoint]: score.mean for score in scores}
    assert found[MEAN] == pytest.approx(expected, rel=1e-6)
    assert float(relative_l2(mean.expand_as(u), u).mean()) != pytest.approx(expected, rel=1e-3)


def weighted_experiment(url: str) -> Experiment:
    """An operator whose sums over points have the quadrature weights of the data."""
    model = {"decoder": "pointwise", "quadrature": True, "width": 8, "depth": 1, "feedforward": 8,
             "dropout": 0.0}  # fmt: skip
    return Experiment.on_store(url, "galerkin-transformer").with_overrides(
        {f"model.{key}": value for key, value in model.items()}
    )


@pytest.mark.parametrize("moving", [False, True])
def test_a_measured_step_has_the_weights_of_the_points(moving, tmp_path):
    ring = Curvilinear((6, 8), 2) if moving else Curvilinear.of(mesh())
    own = {"positions": STRETCHED} if moving else {}
    url = a_store(str(tmp_path / "data.zarr"), ring, **own)
    experiment = weighted_experiment(url)
    pairs = learned(url, experiment)
    torch.manual_seed(0)
    steps, batch = Steps(experiment, pairs, AS_WRITTEN), next(pairs.in_order(4))
    weight = pairs.weight if batch.weight is None else batch.weight
    assert weight is not None
    with torch.no_grad():
        x = pairs.x if batch.x is None else batch.x
        predictor = steps.predictor
        expected, plain = predictor(batch.a, x, weight=weight), predictor(batch.a, x)
        loss = experiment.training.settings().loss
        value = loss(expected, batch.u, batch.a, weight.expand(batch.u.shape[:-1]))
        dropped = loss(plain, batch.u, batch.a)
    assert float(value) != pytest.approx(float(dropped), rel=1e-5)
    torch.testing.assert_close(steps(batch), value, rtol=1e-5, atol=1e-6)


def test_other_resolutions_are_checked_with_the_weights_of_their_points(tmp_path, monkeypatch):
    url = a_store(str(tmp_path / "data.zarr"), Curvilinear.of(mesh()))
    experiment = weighted_experiment(url)
    source = Source(url, experiment)
    pairs = source.samples("train", noise=None).resident()
    operator = checked_operator(experiment, pairs)
    predictor = Predictor(operator, *experiment.normalization.of(pairs))
    seen: list[Any] = []
    monkeypatch.setattr(
        operator, "forward", lambda a, *_, weight=None, **__: seen.append(weight) or a
    )
    check_resolutions(experiment, source, predictor)
    (weight,) = seen
    assert torch.equal(weight, source.samples("test", noise=None).resident().weight)


def test_nodes_of_clouds_are_not_known_to_be_the_same(tmp_path):
    """Neither of clouds of different sizes, nor of points that no cells join."""
    cells = Delaunay(PLACES[0]).simplices
    words = "^normalization: pointwise needs points or nodes that samples share, those of .*"
    for name, domain, further in (
        ("points", Cloud((30,), 2), {}),
        ("sizes", Cloud((30,), 2), {"counts": np.arange(19, 31)}),
        ("cells", Cloud((30,), 2, None, cells), {"counts": np.arange(19, 31)}),
    ):
        url = a_store(str(tmp_path / f"{name}.zarr"), domain, positions=PLACES, **further)
        for which in ("input", "target"):
            experiment = Experiment.on_store(url, "geo-fno").with_overrides(
                {f"normalization.{which}": "pointwise"}
            )
            with pytest.raises(SchemaError, match=words + " differ: use scalar$"):
                train(experiment, url, tmp_path / "run", CPU)
    assert not (tmp_path / "run").exists()


def test_another_resolution_of_a_mesh_is_refused_before_training(tmp_path):
    r, angle = np.meshgrid(np.linspace(1, 2, 7), np.linspace(0, 1.5, 9), indexing="ij")
    ring = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=-1)
    moved = np.stack([ring * (1 + 0.1 * k) for k in range(12)])
    url = a_store(str(tmp_path / "data.zarr"), Curvilinear((7, 9), 2), positions=moved)
    experiment = Experiment.on_store(url, "pit").with_overrides(
        {"epochs": 1, "width": 8, "heads": 1, "latent": 8, "depth": 1,
         "normalization.input": "pointwise"}
    )  # fmt: skip
    train(experiment, url, tmp_path / "run", CPU)
    two = experiment.with_overrides({"resolutions": [7, 4]})
    with pytest.raises(SchemaError, match="by node needs meshes of 7 x 9 nodes, got 4 x 5"):
        train(two, url, tmp_path / "other", CPU)
    assert not (tmp_path / "other").exists()


def test_targets_at_points_of_their_own_have_no_nodes():
    ring, places = Curvilinear((6, 8), 2), torch.rand(4, 6, 8, 2)
    pairs = Samples.of(
        x=None, y=None, samples=np.arange(4), domain=ring, source={"url": "rings"},
        a=torch.rand(4, 6, 8, 1), u=torch.rand(4, 6, 8, 1),
        per_sample={"x": places, "y": places / 2},
    )  # fmt: skip
    input, _ = Normalization(input="pointwise").of(pairs)
    assert input.nodes == (6, 8)
    with pytest.raises(SchemaError, match="those of rings differ: use scalar"):
        Normalization(target="pointwise").of(pairs)
