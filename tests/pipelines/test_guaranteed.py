"""`pdegen predict --bound`: what is proved of predictions, and who is refused."""

import shutil

import numpy as np
import pytest
import xarray as xr

from pdegen.domains import CellGrid
from pdegen.equations.darcy.error_bound import ErrorBound
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.store.reading import Store
from pipelines.runs import guaranteed
from tests.pipelines.command import quietly
from tests.pipelines.conftest import DARCY_DATA
from tests.stores import resealed, with_attributes

SMALL = load_recipe("darcy-quick").with_overrides(DARCY_DATA)
BOUNDS = ["energy", "relative_energy", "l2", "relative_l2"]


@pytest.fixture(scope="module")
def predicted(darcy, tmp_path_factory):
    """The folder with a prediction of all kinds, and what was printed."""
    run, store = darcy
    out = tmp_path_factory.mktemp("guaranteed") / "p.zarr"
    quietly("predict", run / "best.safetensors", "--data", store, "--out", out, "--bound")
    return xr.open_zarr(out).load()


@pytest.fixture(scope="module")
def coefficients(darcy, predicted):
    numbers = predicted["sample"].to_numpy()
    return Store(darcy[1]).values("a", range(24))[numbers].astype(float)


def test_bounds_are_those_of_the_equation(predicted, coefficients):
    expected = ErrorBound(CellGrid(13))(coefficients, predicted.u.to_numpy())
    for key, values in zip(
        BOUNDS, [expected.energy, expected.relative, expected.l2, expected.relative_l2],
        strict=True,
    ):  # fmt: skip
        found = predicted[f"u_bound_{key}"]
        assert found.dims == ("sample",)
        np.testing.assert_allclose(found, values, rtol=1e-10)
        assert found.attrs["long_name"].startswith("guaranteed bound of ‖")


def test_bounds_are_above_the_errors_of_the_labels(darcy, predicted):
    """At cell centres, for all reconstructions have about the same values between them."""
    numbers = predicted["sample"].to_numpy()
    u = Store(darcy[1]).values("u", range(24))[numbers]
    error = np.linalg.norm(predicted.u - u, axis=(1, 2)) / np.linalg.norm(u, axis=(1, 2))
    assert (predicted.u_bound_relative_l2 > 0.95 * error).all()
    assert (predicted.u_bound_relative_energy > 0.5 * error).all()


def test_median_and_worst_are_printed(darcy, predicted, pdegen, monkeypatch):
    """Blocks of one sample give what one block gives."""
    monkeypatch.setattr(guaranteed, "_BLOCK", 1)
    run, store = darcy
    outcome = pdegen("predict", run / "best.safetensors", "--data", store, "--out", "p.zarr",
                     "--bound")  # fmt: skip
    bound = predicted.u_bound_relative_energy.to_numpy()
    assert outcome.out == [
        "p.zarr",
        "guaranteed relative energy error of u, 4 samples: median "
        f"{np.median(bound):.3e}, worst {bound.max():.3e}",
    ]
    with xr.open_zarr("p.zarr") as found:
        np.testing.assert_allclose(found.u_bound_relative_energy, bound, rtol=1e-10)


def test_a_bound_is_that_of_its_own_sample_where_others_were_skipped(darcy, predicted, tmp_path):
    run, store = darcy
    first, skipped, *others = predicted["sample"].to_numpy().tolist()
    gaps = str(shutil.copytree(store, tmp_path / "gaps.zarr"))
    resealed(with_attributes(Store(gaps), skipped=[skipped]))
    out = tmp_path / "p.zarr"
    quietly("predict", run / "best.safetensors", "--data", gaps, "--out", out, "--bound")
    found = xr.open_zarr(out).load()
    assert found["sample"].to_numpy().tolist() == [first, *others]
    expected = predicted.sel(sample=found["sample"])
    for key in BOUNDS:
        np.testing.assert_allclose(found[f"u_bound_{key}"], expected[f"u_bound_{key}"], rtol=1e-4)


# refusals


@pytest.mark.parametrize(
    ("trained", "data", "words", "message"),
    [
        (
            "darcy",
            None,
            ["--resolution", "7"],
            "bounds need the resolution 13 of the store, got 7",
        ),
        ("finished", None, [], "burgers offers no bound of errors"),
        ("inverse", None, [], "darcy bounds the error of u predicted from a, got a from u"),
        ("darcy", "splines", [], "finite-volume with harmonic faces, got published-splines"),
        ("darcy", "noisy", [], "level"),
    ],
)
def test_what_cannot_be_bounded_is_refused(
    request, refused, tmp_path, trained, data, words, message
):
    run, store = request.getfixturevalue(trained)
    name = "last" if trained == "inverse" else "best"
    if data == "splines":
        recipe = SMALL.with_overrides({"solver.method": "published-splines"})
        store = generate(recipe, str(tmp_path / "s.zarr"), workers=1).url
    elif data == "noisy":
        out = tmp_path / "n.zarr"
        quietly("noise", store, "--variable", "a", "--levels", "0,0.1", "--out", out)
        store = out
    line = refused("predict", run / f"{name}.safetensors", "--data", store, "--out", "p.zarr",
                   "--bound", *words)  # fmt: skip
    assert message in line
