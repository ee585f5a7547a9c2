"""A box of length 10 gives the scores of the same data on length 1, where theory says so."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pdegen.domains import GRIDS, Box
from pdegen.formats.exporting import export
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment, domain_of
from pipelines.runs.training import train
from tests.pdegen.formats.layouts import moving, waves
from tests.pipelines.command import quietly
from tests.pipelines.test_measures import measured, pairs_on

CPU = torch.device("cpu")
SPLITS = {"train": 16, "validation": 4, "test": 4}
OPERATORS = ("fno", "galerkin-transformer", "deeponet", "transolver", "gnot", "oformer", "geo-fno")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """URLs of the same data on boxes of length 1 and 10, by grid and length."""
    folder = tmp_path_factory.mktemp("lengths")
    np.savez(folder / "line.npz", a=waves(24, 32), u=waves(24, 32, seed=1))
    np.savez(folder / "time.npz", w=moving(24, 5, 32))
    urls = dict[tuple[str, float], str]()
    for length in (1.0, 10.0):
        for grid in (*GRIDS, "time"):
            pair = ("w", "w") if grid == "time" else ("a", "u")
            moments = (0.0, 0.1, 0.5, 2.0, 3.0) if grid == "time" else None
            options = ImportOptions(
                *pair, "periodic" if grid == "time" else grid, SPLITS, lengths={"x": length},
                moments=moments,
            )  # fmt: skip
            urls[grid, length] = str(folder / f"{grid}{length:g}.zarr")
            name = "time" if grid == "time" else "line"
            import_files([folder / f"{name}.npz"], urls[grid, length], options)
    return urls


@pytest.mark.parametrize("kind", GRIDS)
@pytest.mark.parametrize("shape", [(48,), (32, 24)])
def test_measures_have_no_length_but_that_of_derivatives(kind, shape):
    draw = torch.Generator().manual_seed(0)
    u = torch.randn(2, *shape, 1, dtype=torch.float64, generator=draw)
    p = u + 0.1 * torch.randn(u.shape, dtype=torch.float64, generator=draw)
    unit = Box(tuple(GRIDS[kind](n) for n in shape))
    large = Box(tuple(replace(grid, length=10.0) for grid in unit.grids))
    one, ten = (measured(pairs_on(domain, u), p) for domain in (unit, large))
    for name in one.keys() - {"h1"}:
        torch.testing.assert_close(one[name], ten[name])
    # (|e|² + |De|²)/(|u|² + |Du|²): the derivatives of the large box are a tenth
    e, whole = ({"e": p - u, "u": u}[key] for key in "eu")
    squares = []
    for v in (e, whole):
        square = v.square().flatten(1).mean(1)
        for axis, grid in enumerate(large.grids, start=1):
            ends = v.narrow(axis, 0, 1 if kind == "periodic" else 0)
            slopes = torch.cat([v, ends], dim=axis).diff(dim=axis) / grid.spacing
            square = square + slopes.square().flatten(1).mean(1)
        squares.append(square)
    torch.testing.assert_close(ten["h1"], (squares[0] / squares[1]).sqrt())


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("grid", ["periodic", "nodal"])
def test_an_operator_learns_the_same(stores, operator, grid, tmp_path):
    scores = list[float]()
    for length in (1.0, 10.0):
        store = open_sealed(stores[grid, length])
        experiment = Experiment.on_store(store, operator).with_overrides({"training.epochs": 2})
        epochs = train(experiment, store, tmp_path / f"{length:g}", CPU)
        scores.append(epochs[-1].score)
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


def test_a_rollout_and_its_report_are_the_same_but_for_positions(stores, tmp_path):
    results = []
    for length in (1.0, 10.0):
        run = tmp_path / f"{length:g}"
        quietly(
            "train", "--data", stores["time", length], "--model", "fno", "--out", run,
            "--set", "training.epochs=1", "--set", "task.kind=time",
        )  # fmt: skip
        quietly("report", run, "--data", stores["time", length])
        content = json.loads((run / "scores.json").read_text("utf-8"))
        results.append([result["mean"] for result in content["results"]])
        assert {*content["results"][0]["channels"]} == {f"u, t = {t}" for t in (0.1, 0.5, 2, 3)}
    assert results[0] == pytest.approx(results[1], rel=1e-6)


@pytest.mark.parametrize("format", ["mat", "npy", "hdf5", "pt", "nc", "huggingface"])
def test_an_export_keeps_lengths_and_times(stores, format, tmp_path):
    path = export(stores["time", 10.0], format, tmp_path / "out")
    back = import_files([path], str(tmp_path / "back.zarr"))
    assert domain_of(back) == domain_of(open_sealed(stores["time", 10.0]))
    np.testing.assert_array_equal(back.values("time"), [0.1, 0.5, 2.0, 3.0])
