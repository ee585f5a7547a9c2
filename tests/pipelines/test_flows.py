"""Pipes and airfoils: models of the nodes' positions, on our stores and on published files."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from operators.data import read_pairs
from pdegen.equations.airfoil.mesh import c_grid
from pdegen.equations.airfoil.problem import AirfoilFlow
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import load_experiment
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.score import NORMS
from pipelines.runs.training import train
from tests.pipelines.command import call, quietly

CPU = torch.device("cpu")
FEW = {"samples": 12, "shard": 6, "train": 8, "validation": 2, "test": 2}
SIZES = [f"{split}={FEW[split]}" for split in ("train", "validation", "test")]
SPLITS = [word for size in SIZES for word in ("--split", size)]
SMALL = {"resolutions": [45], "data.resolution": 45, "width": 8, "depth": 1, "heads": 2,
         "slices": 4, "feedforward": 8, "epochs": 2}  # fmt: skip


def made_up(self, seed, samples, device=None):
    """Functions of the nodes in place of a flow, which take no time."""
    (design,) = self.design.build(seed, samples)
    points = c_grid(design, self.resolution)
    x, y = points[..., 0], points[..., 1]
    u = 0.6 + np.exp(-((x - 0.5) ** 2) - (y - design[5]) ** 2)
    fields = {"u": u, "density": u, "pressure": u, "velocity": np.stack([u, u]), "x": x, "y": y}
    fields["weight"] = self.domain.at(points).weights
    scalars = dict.fromkeys(("drag", "lift", "error", "residual"), np.array([0.0]))
    return {
        **{name: values.astype(np.float32)[None] for name, values in fields.items()},
        **scalars, "design": design[None], "iterations": np.array([1]), "status": np.array([0]),
    }  # fmt: skip


@pytest.fixture(scope="module")
def airfoils(tmp_path_factory):
    recipe = load_recipe("airfoil-quick").with_overrides({**FEW, "mach": 0.6})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AirfoilFlow, "solve", made_up)
        return generate(recipe, str(tmp_path_factory.mktemp("ours") / "a.zarr"), workers=1).url


@pytest.fixture(scope="module")
def pipes(tmp_path_factory):
    recipe = load_recipe("pipe-quick").with_overrides({**FEW, "problem.resolution": 33})
    return generate(recipe, str(tmp_path_factory.mktemp("ours") / "p.zarr"), workers=1).url


@pytest.fixture(scope="module")
def ours(airfoils, pipes):
    """Stores by name."""
    return {"airfoil": airfoils, "pipe": pipes}


@pytest.fixture(scope="module")
def theirs(ours, tmp_path_factory):
    """Stores of files in the published layouts, with the values of ours."""
    found = {}
    for name, stem, parts in (
        ("pipe", "Pipe", ("u", "v", "p")),
        ("airfoil", "NACA_Cylinder", ("density", "velocity", "pressure", "u")),
    ):
        folder, store = tmp_path_factory.mktemp(name), open_sealed(ours[name])
        values = {key: store.values(key) for key in ("x", "y", *parts)}
        states = [values[key] if key == "velocity" else values[key][:, None] for key in parts]
        files = {"X": values["x"], "Y": values["y"], "Q": np.concatenate(states, axis=1)}
        for word, array in files.items():
            np.save(folder / f"{stem}_{word}.npy", array)
        found[name] = str(folder / "theirs.zarr")
        quietly("import", *sorted(folder.glob("*.npy")), *SPLITS, "--out", found[name])
    return found


def declared(name, store):
    """The quick experiment of a set, smaller."""
    changes = SMALL if name == "airfoil" else SMALL | {"resolutions": [17], "data.resolution": 17}
    return load_experiment(f"{name}-transolver-quick", store).with_overrides(changes)


@pytest.fixture(scope="module", params=["pipe", "airfoil"])
def trained(request, ours, theirs, tmp_path_factory):
    """The name of a set, and of short trainings on our store and on theirs the runs."""
    folder = tmp_path_factory.mktemp("runs")
    stores = {"ours": ours[request.param], "theirs": theirs[request.param]}
    for who, store in stores.items():
        experiment = declared(request.param, store)
        train(experiment, store, folder / who, CPU)
        evaluate_run(experiment, store, folder / who, CPU)
    return request.param, {who: (folder / who, store) for who, store in stores.items()}


def scores(run):
    (found,) = json.loads((run / "scores.json").read_text("utf-8"))["results"]
    return found


def test_a_model_of_one_is_evaluated_on_the_other(trained, capsys, monkeypatch):
    _, runs = trained
    for who, other in (("ours", "theirs"), ("theirs", "ours")):
        (run, _), (_, store) = runs[who], runs[other]
        words = ["evaluate", run / "best.safetensors", "--data", store]
        words += ["--resolution", scores(run)["resolution"]]
        said = call(capsys, monkeypatch, *words).out[-1]
        assert f"relative L2 error: mean {scores(run)['mean']:.3e}" in said


def test_a_model_is_scored_by_area_over_the_points_and_near_the_body(trained):
    name, runs = trained
    for run, store in runs.values():
        found = scores(run)
        pairs = read_pairs(store, "test", found["resolution"], input=["x", "y"])
        kept = load_file(run / "predictions.safetensors")
        p = next(v for v in kept.values() if v.numel() == pairs.u.numel()).reshape(pairs.u.shape)
        (x, y), alike = pairs.all.per_sample["x"].unbind(-1), torch.ones_like(pairs.u[..., 0])
        near = (x >= -0.5) & (x <= 1.5) & (y >= -0.5) & (y <= 0.5)
        weights = {"area": pairs.all.per_sample["weight"], "points": alike, "near": near.float()}
        squares = {
            key: [(w[..., None] * v**2).sum((1, 2, 3)) for v in (p - pairs.u, pairs.u)]
            for key, w in weights.items()
        }
        expected = {key: (error / size).sqrt() for key, (error, size) in squares.items()}
        measures = {key: of["errors"] for key, of in found["measures"].items() if key in NORMS}
        assert measures.keys() == {"l1", "points", *(("near",) if name == "airfoil" else ())}
        for key, errors in {**measures, "area": found["errors"]}.items():
            if key != "l1":
                np.testing.assert_allclose(errors, expected[key], rtol=1e-4, err_msg=key)


def test_all_points_count_alike_in_training_where_asked_for(ours):
    experiment = declared("airfoil", ours["airfoil"])
    assert experiment.training.weights == "points"
    for weights, weighted in (("points", False), ("area", True)):
        for reading in ("resident", "streamed"):
            own = experiment.with_overrides({"weights": weights, "data.reading": reading})
            source = Source(ours["airfoil"], own)
            chosen = source.samples("validation", "selection", device=CPU)
            for pairs in (source.samples("train", "training", device=CPU), chosen):
                assert (next(iter(pairs.in_order(2))).weight is not None) == weighted
            assert source.samples("test", device=CPU).first().weight is not None
