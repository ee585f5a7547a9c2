from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr
import zarr

from operators.data import DataError, allowed_resolutions, averaging_weights, read_pairs
from operators.data.opening import StoredVariable
from pdegen.domains import CellGrid, NodalGrid
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from tests.stores import two_input_store


def test_pairs_are_the_stored_values_batch_first_channels_last(store):
    pairs = read_pairs(store, "train")
    with xr.open_zarr(store) as dataset:
        a, u, x = (dataset[name].values for name in ("a", "u", "x"))
    assert np.array_equal(pairs.a[:, :, 0], a[:32])
    assert np.array_equal(pairs.u[:, :, 0], u[:32])
    assert np.array_equal(pairs.x[:, 0], x.astype(np.float32))
    assert pairs.grid == "periodic"
    assert pairs.ids.tolist() == list(range(32))


def test_a_coarser_resolution_takes_points_of_the_store(store):
    fine, coarse = read_pairs(store, "test"), read_pairs(store, "test", 16)
    assert torch.equal(coarse.a, fine.a[:, ::4])
    assert torch.equal(coarse.u, fine.u[:, ::4])
    assert torch.equal(coarse.x, fine.x[::4])


def test_on_a_square_the_axes_of_arrays_are_those_of_coordinates(plane_store, plane_values):
    pairs = read_pairs(plane_store, (3, 14))
    assert np.array_equal(pairs.a[..., 0], plane_values["a"][3:14])
    assert np.array_equal(pairs.u[..., 0], plane_values["u"][3:14])
    x = CellGrid(13).x.astype(np.float32)
    assert np.array_equal(pairs.x[..., 0], np.repeat(x[:, None], 13, axis=1))
    assert np.array_equal(pairs.x[..., 1], np.repeat(x[None], 13, axis=0))
    assert pairs.y is None
    assert pairs.target_points is pairs.x
    assert pairs.grid == "cell"


def test_a_generated_darcy_store_is_read_with_x_before_y(darcy_store):
    pairs = read_pairs(darcy_store, "train", 5)
    with xr.open_zarr(darcy_store) as dataset:
        chosen = dataset.isel(sample=slice(10), x=slice(None, None, 3), y=slice(None, None, 3))
        stored = {name: chosen[name].transpose("sample", "x", "y").values for name in ("a", "u")}
        x, y = chosen["x"].values, chosen["y"].values
    assert np.array_equal(pairs.a[..., 0], stored["a"])
    assert np.array_equal(pairs.u[..., 0], stored["u"])
    assert np.array_equal(pairs.x[:, 2, 0], x.astype(np.float32))
    assert np.array_equal(pairs.x[2, :, 1], y.astype(np.float32))
    assert pairs.grid == "cell"
    assert not np.array_equal(stored["a"], stored["a"].swapaxes(1, 2))  # else no order is tested


@pytest.mark.parametrize(("kind", "grid"), [("cell", CellGrid(13)), ("nodal", NodalGrid(13))])
@pytest.mark.parametrize(("resolution", "stride"), [(7, 2), (5, 3), (4, 4), (2, 12)])
def test_a_subsample_keeps_both_ends_and_its_true_points(
    laid_out, plane_values, kind, grid, resolution, stride
):
    pairs = read_pairs(laid_out(kind, [grid.x] * 2, **plane_values), "train", resolution)
    assert pairs.grid == kind
    for values, stored in ((pairs.a, "a"), (pairs.u, "u")):
        assert np.array_equal(values[..., 0], plane_values[stored][:12, ::stride, ::stride])
    axis = grid.x[::stride].astype(np.float32)
    assert len(axis) == resolution
    assert axis[-1] == np.float32(grid.x[-1])
    assert np.array_equal(pairs.x[:, 0, 0], axis)
    assert np.array_equal(pairs.x[0, :, 1], axis)


def test_421_cells_have_the_published_subsamples():
    published = {421, 211, 141, 85, 71, 61, 43, 36, 31, 29}
    assert published <= set(allowed_resolutions(421, "cell"))


@pytest.mark.parametrize("m", [1, 4, 5, 13])
def test_target_averages_are_those_of_the_piecewise_constant_function(plane_store, plane_values, m):
    """Every cell is cut into m x m equal parts; then 13 x 13 of them make up a coarse cell."""
    pairs = read_pairs(plane_store, "test", 7, input="u", target="a", target_resolution=m)
    parts = np.kron(plane_values["a"][12:].astype(float), np.ones((m, m)))
    expected = parts.reshape(12, m, 13, m, 13).mean(axis=(2, 4))
    np.testing.assert_allclose(pairs.u[..., 0], expected, rtol=2e-7)  # rounded to float32 once
    assert np.array_equal(pairs.a[..., 0], plane_values["u"][12:, ::2, ::2])
    assert (pairs.source["input"], pairs.source["target"]) == ("u", "a")
    assert pairs.y is not None
    centres = CellGrid(m).x.astype(np.float32)
    assert np.array_equal(pairs.y[:, 0, 0], centres)
    assert np.array_equal(pairs.y[0, :, 1], centres)


@pytest.mark.parametrize(
    ("n", "m"), [(421, 36), (141, 36), (211, 71), (421, 71), (421, 140), (13, 13), (7, 1)]
)
def test_averages_keep_constants_and_the_integral(n, m):
    weights = averaging_weights(n, m)
    assert weights.shape == (m, n)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=0) * n / m, 1, rtol=1e-12)


@pytest.fixture(scope="module")
def noisy_store(laid_out, plane_values):
    u = np.stack([plane_values["u"] + level for level in (0.0, 0.01, 0.1)], axis=1)
    return laid_out("cell", [CellGrid(13).x] * 2, [0.0, 0.01, 0.1], a=plane_values["a"], u=u)


@pytest.mark.parametrize("level", [0.0, 0.01, 0.1])
def test_a_level_of_a_noisy_store_is_read(noisy_store, plane_values, level):
    pairs = read_pairs(noisy_store, "test", 5, input="u", target="a", level=level)
    expected = plane_values["u"][12:, ::3, ::3] + np.float32(level)
    assert np.array_equal(pairs.a[..., 0], expected)
    assert np.array_equal(pairs.u[..., 0], plane_values["a"][12:, ::3, ::3])
    assert pairs.source["level"] == level


@pytest.mark.parametrize(
    "dims", [("time", "level"), ("channel", "time"), ("channel", "level"), ("mode", "time")]
)
@pytest.mark.usefixtures("unchecked")
def test_a_variable_whose_axes_are_in_another_order_is_refused(dims):
    """A store of another program: ours cannot be laid out so."""
    array = SimpleNamespace(dims=("sample", *dims, "x"))
    other = SimpleNamespace(url="other.zarr", arrays={"u": array})
    with pytest.raises(DataError, match=f"u has the axes sample, {', '.join(dims)}, x: expected"):
        StoredVariable.of(other, "u", None, ("x",))


@pytest.fixture(scope="module")
def other_stores(store, plane_store, noisy_store, laid_out, plane_values):
    """By name: on a line, on a square, noisy, nodal, of an unknown grid, with v of x alone."""
    cells = [CellGrid(13).x] * 2
    return {
        "line": store, "square": plane_store, "noisy": noisy_store,
        "nodal": laid_out("nodal", [NodalGrid(13).x] * 2, **plane_values),
        "unknown": laid_out("chebyshev", cells, **plane_values),
        "v": laid_out("cell", cells, **plane_values, v=plane_values["u"][:, :, 0]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("line", {"split": "tset"}, "no split 'tset': known are train, validation, test"),
        ("line", {"resolution": 48}, "48 is not a subsample of the 64 .* possible are 32 or 64$"),
        ("line", {"split": (0, 41)}, "has samples 0 to 39, got the range 0 to 40"),
        ("square", {"resolution": 6},
         "6 is not a subsample of the 13 cell .* possible are 5 or 7$"),
        ("square", {"resolution": 26}, "26 is not a subsample of the 13 cell points"),
        ("square", {"resolution": 0}, "0 is not a subsample of the 13 cell points"),
        ("square", {"target_resolution": 14}, "it must be 1 to 13 on a cell grid, got 14"),
        ("square", {"target_resolution": 0}, "it must be 1 to 13 on a cell grid, got 0"),
        ("square", {"input": "b"}, "has no variable b"),
        ("square", {"target": "residual"}, "residual is not a function on a grid"),
        ("square", {"input": "x"}, "x is not a function on a grid"),
        ("square", {"level": 0.1}, "has no noise levels, got level 0.1"),
        ("noisy", {}, "u is stored at several noise levels, choose one by level: 0, 0.01, 0.1$"),
        ("noisy", {"level": 0.05}, "u has no noise level 0.05: known are 0, 0.01, 0.1$"),
        ("nodal", {"target_resolution": 4},
         "it must be 1 to 13 on a cell grid, got 4 on the nodal"),
        ("unknown", {}, r"grid of x is 'chebyshev': .*periodic, cell, nodal$"),
        ("v", {"resolution": 7, "target": "v"}, r"a is a function of x, y, v of x: .* same axes$"),
        ("v", {"input": "v"}, r"v is a function of x, u of x, y: .* the same axes$"),
    ],
)  # fmt: skip
def test_what_a_store_cannot_give_is_refused_in_one_line(other_stores, name, words, message):
    with pytest.raises(DataError, match=message) as refusal:
        read_pairs(other_stores[name], **{"split": "test", **words})
    assert "\n" not in str(refusal.value)


def test_refuses_places_that_are_no_store(tmp_path):
    with pytest.raises(DataError, match="no such store"):
        read_pairs(str(tmp_path / "absent"), "train")
    zarr.create_group(str(tmp_path / "foreign"))
    with pytest.raises(DataError, match="not a pdegen store"):
        read_pairs(str(tmp_path / "foreign"), "train")


@pytest.fixture(scope="module")
def two_inputs(tmp_path_factory):
    """u = u0 + 2 v on a circle, with a further target."""
    return two_input_store(tmp_path_factory.mktemp("two") / "store.zarr")


def test_all_inputs_of_a_store_are_read_by_default(two_inputs):
    pairs = read_pairs(two_inputs, "train")
    torch.testing.assert_close(pairs.u[..., 0], pairs.a[..., 0] + 2 * pairs.a[..., 1])
    assert (pairs.source["input"], pairs.source["target"]) == (["u0", "v"], "u")
    assert [channel.variable for channel in pairs.input_channels] == ["u0", "v"]
    assert read_pairs(two_inputs, "train", input="v").channels == (1, 1)


def test_positions_are_the_inputs_of_a_store_that_has_no_others(tmp_path):
    recipe = load_recipe("elasticity-quick").with_overrides(
        {"samples": 3, "resolution": 12, "train": 1, "validation": 1, "test": 1}
    )
    url = generate(recipe, str(tmp_path / "store.zarr"), workers=1).url
    pairs = read_pairs(url, "train")
    assert (pairs.source["input"], pairs.source["target"]) == (["x", "y"], "u")


class Numbered:
    """Replaces inputs by the numbers of their samples, anew in each epoch."""

    channels = 0
    fresh = True

    def __call__(self, a, samples, epoch):
        numbers = np.array(samples, np.float32) + 100 * (epoch or 0)
        return np.broadcast_to(numbers.reshape(-1, *[1] * (a.ndim - 1)), a.shape).copy()


@pytest.mark.parametrize("rows", [slice(3, 7), np.array([6, 2, 4, 3])])
def test_samples_that_are_chosen_keep_their_own_fresh_noise(darcy_store, rows):
    pairs = read_pairs(darcy_store, "train", 5).resident()
    (batch,) = pairs.with_noise(Numbered()).rows(rows).batches(0, 1, 4)
    numbers = batch.a[:, 0, 0, 0].long() - 100
    assert sorted(numbers.tolist()) == sorted(pairs.ids[rows].tolist())
    assert torch.equal(batch.u, pairs.u[numbers - int(pairs.ids[0])])
