"""Files with the layouts of public ones: without options their command is printed, and it works."""

import shlex
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from scipy.io import loadmat, netcdf_file

from pdegen.domains import Cloud
from pdegen.formats.arrays import FormatError
from pdegen.formats.importing import from_xarray, import_files, listing
from pdegen.formats.plan import ImportOptions
from pdegen.store.reading import StoreError, open_sealed
from pipelines.config.experiment import domain_of
from tests.pdegen.formats import layouts
from tests.pdegen.formats.files import imported
from tests.pipelines.command import quietly

DECLARED = [
    "burgers_shock.mat", "NLS.mat", "cylinder_nektar_wake.mat", "era5.nc", "era5_classic.nc",
    "pair.pt", "plate.vtu", "initial.npy",
]  # fmt: skip
RECOGNISED = {
    "2D_diff-react_NA_NA.h5": "PDEBench", "2D_rdb_NA_NA.h5": "PDEBench",
    "1D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5": "PDEBench",
    "acoustic_scattering_inclusions_chunk_0.hdf5": "The Well",
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return layouts.write(tmp_path_factory.mktemp("layouts"))


def windows(u: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """First and later frames of the windows of a trajectory, whose first axis is that of times."""
    cut = [u[k : k + length] for k in range(0, len(u) - length + 1, length)]
    return np.stack([w[0] for w in cut]), np.stack([w[1:] for w in cut])


def expected(name: str, paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Input and target of a file, as SciPy, h5py, PyTorch, meshio and NumPy read it."""
    path = paths[0]
    if name == "burgers_shock.mat":
        return windows(loadmat(path)["usol"].T, 10)
    if name == "NLS.mat":
        u = loadmat(path)["uu"].T
        return windows(np.stack([u.real, u.imag], axis=1), 8)
    if name == "cylinder_nektar_wake.mat":
        return windows(loadmat(path)["U_star"].transpose(2, 1, 0), 10)
    if name == "era5.nc":
        with h5py.File(path) as file:
            packed = file["t2m"][...]
        return windows((packed * 0.002 + 280.0)[:, ::-1].swapaxes(1, 2), 8)
    if name == "era5_classic.nc":
        with netcdf_file(path, mmap=False) as file:
            packed = file.variables["t2m"][:].copy()
        return windows((packed * 0.002 + 280.0)[:, ::-1].swapaxes(1, 2), 8)
    if name == "pair.pt":
        import torch

        a, u = torch.load(path)
        return a.numpy(), u.numpy()
    if name == "plate.vtu":
        import meshio

        data = [meshio.read(path).point_data for path in paths]
        return (
            np.stack([one["load"] for one in data]),
            np.stack([one["displacement"].T for one in data]),
        )
    return np.load(paths[0]), np.load(paths[1])


@pytest.mark.parametrize("name", DECLARED)
def test_the_printed_command_imports_the_values(files, name, tmp_path):
    lines = listing(files[name])
    assert lines[-2].endswith("if the guesses are right, import it by"), lines[-2]
    words = shlex.split(lines[-1])
    assert words[:2] == ["pdegen", "import"]
    quietly(*words[1:-1], tmp_path / "s.zarr")
    store = xr.open_zarr(str(tmp_path / "s.zarr"))
    a, u = expected(name, files[name])
    rtol = 1e-8 if name == "era5_classic.nc" else 1e-15  # SciPy stores its factor as float32
    np.testing.assert_allclose(store.a.values, a, rtol=rtol)
    np.testing.assert_allclose(store.u.values, u, rtol=rtol)
    quietly("verify", tmp_path / "s.zarr")


@pytest.mark.parametrize("name", RECOGNISED)
def test_recognised_layouts_need_no_options(files, name, tmp_path):
    said = list[str]()
    store = import_files(files[name], str(tmp_path / "s.zarr"), tell=said.append)
    assert said[0].startswith(f"recognised as {RECOGNISED[name]}")
    quietly("verify", store.url)
    with h5py.File(files[name][0]) as file:
        if "0000" in file:
            w = np.stack([file[f"{k:04d}/data"][...] for k in range(24)]).transpose(0, 1, 4, 2, 3)
        elif "Vx" in file:
            w = np.stack([file[key][...] for key in ("density", "Vx", "pressure")], axis=2)
        else:
            scalars = [file[f"t0_fields/{key}"][...] for key in ("density", "pressure")]
            vector = np.moveaxis(file["t1_fields/velocity"][...], -1, 0)
            w = np.stack([*scalars, *vector], axis=2)
    np.testing.assert_array_equal(store.values("a"), w[:, 0])
    np.testing.assert_array_equal(store.values("u"), w[:, 1:])


def test_the_mesh_of_a_vtu_file_has_its_cells_and_boundary(files, tmp_path):
    options = ImportOptions("load", "displacement", splits={"train": 20, "test": 4})
    store = imported(tmp_path, *files["plate.vtu"], import_options=options)
    domain = domain_of(store)
    assert isinstance(domain, Cloud)
    assert np.isclose(domain.weights.sum(), 4)  # the plate has sides of 2
    x = domain.points
    np.testing.assert_array_equal(domain.boundary, ((x == 0) | (x == 2)).any(axis=1))


# Own points.

N = 40
DRAW = np.random.default_rng(0)
SHARED, MOVING = DRAW.uniform(0, 1, (N, 2)), DRAW.uniform(0, 1, (12, N, 2))
A, U = DRAW.standard_normal((2, 12, N))
CELLS = np.stack([np.arange(N - 2), np.arange(1, N - 1), np.arange(2, N)], axis=-1)
SPLITS = {"train": 8, "validation": 2, "test": 2}
OF_CLOUD = ImportOptions("a", "u", "cloud", SPLITS)


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path / "own.npz", **{"a": A, "u": U, **arrays})
    return path / "own.npz"


@pytest.mark.parametrize(
    ("arrays", "options"),
    [
        ({"points": SHARED}, {}),
        ({"where": SHARED}, {"points": "where"}),
        ({"where": SHARED.T}, {"points": "where"}),
        ({"x": SHARED[:, 0], "y": SHARED[:, 1]}, {}),
        ({"p": SHARED[:, :1], "q": SHARED[:, 1:]}, {"coordinates": {"x": "p", "y": "q"}}),
    ],
)
def test_points_that_all_samples_share(tmp_path, arrays, options):
    store = imported(tmp_path, npz(tmp_path, **arrays), import_options=replace(OF_CLOUD, **options))
    np.testing.assert_array_equal(domain_of(store).points, SHARED)
    np.testing.assert_array_equal(store.values("u"), U)
    assert store.raw_attributes_of("u")["coordinates"] == "x y"


@pytest.mark.parametrize("moved", [(0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 1, 0)])
def test_points_of_each_sample(tmp_path, moved):
    options = ImportOptions("a", "u", "cloud", SPLITS, points="where")
    file = npz(tmp_path, where=MOVING.transpose(moved))
    store = imported(tmp_path, file, import_options=options)
    assert domain_of(store).moves
    for k, axis in enumerate("xy"):
        np.testing.assert_array_equal(store.values(axis), MOVING[..., k])
        assert store.raw_attributes_of(axis)["role"] == "geometry"


@pytest.mark.parametrize("first", [0, 1])
def test_cells_and_edges_are_counted_from_0_or_1(tmp_path, first):
    options = ImportOptions("a", "u", "cloud", SPLITS, points="x", cells="tri", edge="rim")
    rim = np.array([0, 3, N - 1])
    file = npz(tmp_path, x=SHARED, tri=CELLS + first, rim=rim + first)
    said = list[str]()
    store = imported(tmp_path, file, import_options=options, tell=said.append)
    domain = domain_of(store)
    assert isinstance(domain, Cloud)
    np.testing.assert_array_equal(domain.cells, CELLS)
    assert np.flatnonzero(domain.boundary).tolist() == rim.tolist()
    assert f"points are counted from {first} in tri and rim" in said[0]


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({}, {}, "the positions of the 40 points are needed: give --points NAME"),
        ({"points": SHARED[1:]}, {}, "are needed: give --points"),
        ({"w": SHARED[1:]}, {"points": "w"}, "does not have the positions of the 40 points"),
        ({"y": SHARED[:, 1]}, {}, "positions are given along y: x comes first"),
        (
            {"x": SHARED, "t": CELLS + 0.5},
            {"points": "x", "cells": "t"},
            "--cells: whole numbers of points",
        ),
        (
            {"x": SHARED, "t": CELLS + 5},
            {"points": "x", "cells": "t"},
            "the numbers of points are 5 to 44, but there are 40",
        ),
        (
            {"x": SHARED, "e": [3, 50]},
            {"points": "x", "edge": "e"},
            "numbers of points are 3 to 50",
        ),
        ({"x": SHARED, "e": [3, -5]}, {"points": "x", "edge": "e"}, "--edge: whole numbers"),
        ({"x": SHARED, "e": [3, np.nan]}, {"points": "x", "edge": "e"}, "--edge: whole numbers"),
        ({"x": SHARED * np.nan}, {"points": "x"}, "x has positions that are not finite"),
        (
            {"x": SHARED, "q": SHARED[:, 0]},
            {"points": "x", "coordinates": {"x": "q"}},
            "both give positions",
        ),
        ({"x": SHARED}, {"points": "x", "grid": "nodal"}, "--points needs --grid cloud or curv"),
    ],
)
def test_points_that_do_not_fit_are_refused(tmp_path, arrays, options, message):
    with pytest.raises(FormatError, match=message):
        imported(tmp_path, npz(tmp_path, **arrays), import_options=replace(OF_CLOUD, **options))


def test_a_curvilinear_mesh_has_two_arrays_of_positions(tmp_path):
    r, phi = np.meshgrid(np.linspace(1, 2, 5), np.linspace(0, 1, 8), indexing="ij")
    a, u = A.reshape(12, 5, 8), U.reshape(12, 5, 8)
    np.savez(tmp_path / "own.npz", a=a, u=u, X=r * np.cos(phi), Y=r * np.sin(phi))
    options = ImportOptions("a", "u", "curvilinear", SPLITS)
    store = imported(tmp_path, tmp_path / "own.npz", import_options=options)
    assert np.isclose(domain_of(store).weights.sum(), 1.5, rtol=0.02)  # area of the sector
    np.testing.assert_array_equal(store.values("u"), u)


@pytest.mark.parametrize("falling", [False, True])
def test_a_nodal_axis_of_unequal_steps_is_a_mesh(tmp_path, falling):
    x = np.linspace(0, 1, N) ** 2
    order = slice(None, None, -1) if falling else slice(None)
    said = list[str]()
    options = ImportOptions("a", "u", "nodal", SPLITS)
    file = npz(tmp_path, x=x[order])
    store = imported(tmp_path, file, import_options=options, tell=said.append)
    np.testing.assert_array_equal(domain_of(store).points[:, 0], x)
    np.testing.assert_array_equal(store.values("u"), U[:, order])
    assert "x rise by unequal steps: the points are a mesh" in said[0]
    assert np.isclose(domain_of(store).weights.sum(), 1)


@pytest.mark.parametrize("grid", ["periodic", "cell"])
def test_an_axis_of_unequal_steps_is_no_other_grid(tmp_path, grid):
    options = ImportOptions("a", "u", grid, SPLITS)
    with pytest.raises(FormatError, match="do not rise by equal steps"):
        imported(tmp_path, npz(tmp_path, x=np.linspace(0, 1, N) ** 2), import_options=options)


# Windows of trajectories, several files, numbers of samples, complex numbers.

TRAJECTORY = DRAW.standard_normal((30, 16))


@pytest.mark.parametrize(("window", "stride"), [(2, None), (5, 5), (5, 2), (6, 1), (3, 4)])
def test_windows_of_a_trajectory_never_share_a_time_between_splits(tmp_path, window, stride):
    np.save(tmp_path / "w.npy", TRAJECTORY)
    step = stride or window
    count = (30 - window) // step + 1
    sizes = {"train": 1, "validation": 1, "test": 1}
    options = ImportOptions(
        "w", "w", "periodic", sizes, "none", input_axes=("time", "x"), target_axes=("time", "x"),
        window=window, stride=stride, moments=tuple(0.5 * k for k in range(30)),
    )  # fmt: skip
    store = imported(tmp_path, tmp_path / "w.npy", import_options=options)
    cut = np.stack([TRAJECTORY[k * step : k * step + window] for k in range(count)])
    np.testing.assert_array_equal(store.values("a"), cut[:, 0])
    u = store.values("u")
    np.testing.assert_array_equal(u.reshape(count, -1, 16), cut[:, 1:])
    np.testing.assert_allclose(store.values("time"), 0.5 * np.arange(1, window))
    frames = {
        name: {t for k in range(*ends) for t in range(k * step, k * step + window)}
        for name, ends in store.raw_attributes["splits"].items()
    }
    assert len(frames) == 3
    assert not frames["train"] & frames["validation"]
    assert not frames["validation"] & frames["test"]


def test_too_large_splits_of_windows_say_what_fits(tmp_path):
    np.save(tmp_path / "w.npy", TRAJECTORY)
    options = ImportOptions(
        "w", "w", "periodic", {"train": 10, "test": 2}, "none", input_axes=("time", "x"),
        target_axes=("time", "x"), window=6, stride=2,
    )  # fmt: skip
    with pytest.raises(FormatError, match=r"13 windows cannot .* train has at most 9"):
        imported(tmp_path, tmp_path / "w.npy", import_options=options)


def test_windows_of_several_trajectories_stay_together(tmp_path):
    w = DRAW.standard_normal((4, 12, 16))
    np.save(tmp_path / "w.npy", w)
    options = ImportOptions("w", "w", "periodic", {"train": 6, "test": 2}, window=6)
    store = imported(tmp_path, tmp_path / "w.npy", import_options=options)
    np.testing.assert_array_equal(store.values("a"), w[:, ::6].reshape(8, 16))
    assert store.raw_attributes["splits"] == {"train": [0, 6], "test": [6, 8]}


@pytest.mark.parametrize("window", [1, 31])
def test_a_window_has_from_two_to_all_times(tmp_path, window):
    np.save(tmp_path / "w.npy", TRAJECTORY)
    axes = ("time", "x")
    options = ImportOptions("w", "w", "nodal", {"train": 1}, "none", input_axes=axes,
                            target_axes=axes, window=window)  # fmt: skip
    with pytest.raises(FormatError, match=f"--window {window}.*has 30 times"):
        imported(tmp_path, tmp_path / "w.npy", import_options=options)


def test_each_file_is_a_sample(tmp_path):
    files = list[Path]()
    for k in range(12):
        files.append(tmp_path / f"{k:03d}.npz")
        np.savez(files[-1], a=A[k], u=U[k], x=np.linspace(0, 2, N))
    options = ImportOptions("a", "u", "nodal", SPLITS, "files")
    store = imported(tmp_path, *files, import_options=options)
    np.testing.assert_array_equal(store.values("u"), U)
    assert domain_of(store).grids[0].length == 2
    np.savez(files[5], a=A[5], u=U[5, 1:], x=np.linspace(0, 2, N))
    with pytest.raises(FormatError, match=r"005\.npz: u \(39,\).* differ: samples have equal"):
        import_files(files, str(tmp_path / "other.zarr"), options)


def test_numbers_of_samples_are_inputs_beside_functions(tmp_path):
    nu = DRAW.uniform(1, 2, 12)
    file = npz(tmp_path, nu=nu)
    options = ImportOptions(("a", "nu"), "u", "nodal", SPLITS)
    store = imported(tmp_path, file, import_options=options)
    repeated = np.repeat(nu[:, None], N, axis=1)
    np.testing.assert_array_equal(store.values("a"), np.stack([A, repeated], axis=1))
    assert store.raw_attributes_of("a")["channels"] == ["a", "nu"]


def test_numbers_of_samples_are_inputs_or_targets_alone(tmp_path):
    nu = DRAW.uniform(1, 2, (12, 3))
    options = ImportOptions("nu", "u", "nodal", SPLITS, input_axes=("sample", "channel"),
                            target_axes=("sample", "x"))  # fmt: skip
    store = imported(tmp_path, npz(tmp_path, nu=nu), import_options=options)
    np.testing.assert_array_equal(store.values("a"), np.repeat(nu[..., None], N, axis=2))


def test_complex_numbers_are_two_channels_in_every_format(tmp_path):
    import torch
    from scipy.io import savemat

    a, u = A + 1j * U, U - 2j * A
    np.savez(tmp_path / "c.npz", a=a, u=u)
    torch.save({"a": torch.from_numpy(a), "u": torch.from_numpy(u)}, tmp_path / "c.pt")
    for name, packed in (("c.mat", False), ("packed.mat", True)):
        savemat(tmp_path / name, {"a": a, "u": u}, do_compression=packed)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["a"], file["u"] = a, u
    options = ImportOptions("a", "u", "nodal", SPLITS)
    for name in ("c.npz", "c.pt", "c.mat", "packed.mat", "c.h5"):
        store = import_files([tmp_path / name], str(tmp_path / f"{name}.zarr"), options)
        np.testing.assert_array_equal(store.values("u"), np.stack([u.real, u.imag], axis=1))
        assert store.raw_attributes_of("u")["channels"] == ["real.u", "imaginary.u"]


def test_axes_without_positions_beside_others_that_have_them_are_asked_for(tmp_path):
    both = DRAW.standard_normal((12, 8, 2))
    np.savez(tmp_path / "own.npz", a=both, u=both, x=np.arange(8))
    options = ImportOptions("a", "u", "periodic", SPLITS)
    with pytest.raises(FormatError, match="positions along x, and none along a further axis of 2"):
        imported(tmp_path, tmp_path / "own.npz", import_options=options)


HOLE = np.ones((5, 8), bool)
HOLE[1:3, 2:5] = False


@pytest.mark.parametrize("mask", ["missing", "land", "grey"])
@pytest.mark.parametrize("falling", [False, True])
def test_points_without_values_are_left_out_of_a_cloud(tmp_path, mask, falling):
    a, u = A.reshape(12, 5, 8).copy(), U.reshape(12, 5, 8).copy()
    a[:, ~HOLE] = u[:, ~HOLE] = np.nan
    x, y = np.linspace(0, 1, 5), np.linspace(0, 2, 8)
    x = x[::-1] if falling else x
    grey = np.where(HOLE, 1.0, np.nan)
    np.savez(tmp_path / "own.npz", a=a, u=u, x=x, y=y, land=HOLE, grey=grey)
    options = ImportOptions("a", "u", "nodal", SPLITS)
    with pytest.raises(FormatError, match="not finite"):
        imported(tmp_path, tmp_path / "own.npz", import_options=options)
    said = list[str]()
    options = replace(options, mask=mask)
    store = imported(tmp_path, tmp_path / "own.npz", import_options=options, tell=said.append)
    assert said[0].endswith("34 of 40 points have values: they are a cloud")
    order = slice(None, None, -1) if falling else slice(None)
    inside = HOLE[order]
    np.testing.assert_array_equal(store.values("u"), u[:, order][:, inside])
    points = np.stack(np.meshgrid(np.linspace(0, 1, 5), y, indexing="ij"), axis=-1)
    domain = domain_of(store)
    np.testing.assert_allclose(domain.points, points[inside])
    expected = np.zeros((5, 8), bool)
    expected[[0, -1]] = expected[:, [0, -1]] = True
    expected[0:4, 2:5] = expected[1:3, 1:6] = True  # next to the hole
    np.testing.assert_array_equal(domain.boundary, expected[order][inside])


def test_a_mask_that_does_not_fit_is_refused(tmp_path):
    a, u = A.reshape(12, 5, 8).copy(), U.reshape(12, 5, 8).copy()
    u[0, 0, 0] = np.nan  # of the first sample alone
    file = tmp_path / "own.npz"
    np.savez(file, a=a, u=u, wide=np.ones((8, 5)), grey=np.full((5, 8), 0.5), none=0 * HOLE)
    for mask, message in (
        ("missing", "has values where its first sample lacks them"),
        ("wide", r"wide \(8, 5\) has not the axes x, y"),
        ("grey", "has other numbers than 0 and 1"),
        ("none", "0 points are left"),
        ("nothing", "has no array 'nothing'"),
    ):
        options = ImportOptions("a", "u", "nodal", SPLITS, mask=mask)
        with pytest.raises(FormatError, match=message):
            imported(tmp_path, file, import_options=options)
        assert not (tmp_path / "store.zarr").exists()


def test_a_mask_of_all_points_keeps_the_grid(tmp_path):
    options = ImportOptions("a", "u", "nodal", SPLITS, mask="missing")
    assert domain_of(imported(tmp_path, npz(tmp_path), import_options=options)).kind == "box"


def test_a_number_of_each_sample_has_values_in_holes(tmp_path):
    u = U.copy()
    u[:, 5:9] = np.nan
    np.savez(tmp_path / "own.npz", nu=A[:, 0], u=u)
    options = ImportOptions("nu", "u", "nodal", SPLITS, mask="missing")
    store = imported(tmp_path, tmp_path / "own.npz", import_options=options)
    assert store.values("a").shape == store.values("u").shape == (12, 36)


# Found by strangers.


def refused(tmp_path: Path, arrays: dict[str, object], message: str, *words: object, **options):
    np.savez(tmp_path / "own.npz", **arrays)
    given = ImportOptions(*(words or ("a", "u", "nodal", SPLITS)), **options)
    with pytest.raises(FormatError, match=message):
        imported(tmp_path, tmp_path / "own.npz", import_options=given)
    assert not (tmp_path / "store.zarr").exists()


PAIR = {"a": A, "u": U}


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"x": DRAW.uniform(size=N)}, {}, "neither rise nor fall"),
        ({"x": np.sort(DRAW.uniform(size=N)) * [*[1] * 39, np.nan]}, {}, "not finite"),
        ({}, {"stride": 0, "window": 4}, "--window 4 --stride 0"),
        ({}, {"moments": (0.0, 1.0)}, "--times: no array has an axis of times"),
        ({}, {"times": "last"}, "--times: no array has an axis of times"),
        ({"t": np.arange(3.0)}, {"coordinates": {"time": "t"}}, "there is no such axis"),
        ({"q": np.arange(3.0)}, {"coordinates": {"y": "q"}}, "there is no such axis"),
    ],
)
def test_what_describes_nothing_is_refused(tmp_path, arrays, options, message):
    refused(tmp_path, {**PAIR, **arrays}, message, **options)


def test_the_target_is_not_in_the_input(tmp_path):
    words = (("u", "a"), "u", "nodal", SPLITS)
    refused(tmp_path, PAIR, "u .* is input and target, but has no axis of times", *words)
    refused(tmp_path, PAIR, "a .* is input and target", ("a", "u"), ("u", "a"), "nodal", SPLITS)
    refused(tmp_path, PAIR, "u .* is input and target", "u", "u", "nodal", SPLITS)


def test_a_first_frame_and_a_number_give_the_later_frames(tmp_path):
    w, nu = DRAW.standard_normal((12, 5, 16)), DRAW.uniform(size=12)
    np.savez(tmp_path / "own.npz", w=w, nu=nu)
    options = ImportOptions(("w", "nu"), "w", "periodic", SPLITS)
    store = imported(tmp_path, tmp_path / "own.npz", import_options=options)
    np.testing.assert_array_equal(store.values("u"), w[:, 1:])
    np.testing.assert_array_equal(store.values("a")[:, 0], w[:, 0])
    np.testing.assert_array_equal(store.values("a")[:, 1], np.repeat(nu[:, None], 16, 1))


@pytest.mark.parametrize("name", ["t", "time", "ts"])
def test_a_number_named_like_times_is_no_line_of_times(tmp_path, name):
    np.savez(tmp_path / "own.npz", a=A, u=U, **{name: 3.0})
    options = ImportOptions("a", "u", "nodal", SPLITS)
    imported(tmp_path, tmp_path / "own.npz", import_options=options)
    assert listing([tmp_path / "own.npz"])[-1].startswith("pdegen import")


@pytest.mark.parametrize("group", [False, True])
def test_positions_that_differ_between_samples_are_refused(tmp_path, group):
    if group:
        with h5py.File(tmp_path / "g.h5", "w") as file:
            for k in range(4):
                file[f"{k:04d}/data"] = DRAW.standard_normal((5, 16))
                file[f"{k:04d}/t"] = np.linspace(0, 1 + k, 5)
        files, words = [tmp_path / "g.h5"], ("data", "data", "periodic", {"train": 4})
    else:
        files, words = [], ("a", "u", "nodal", {"train": 4}, "files")
        for k in range(4):
            files.append(tmp_path / f"{k}.npz")
            np.savez(files[-1], a=A[k], u=U[k], x=np.linspace(0, 1 + k, N))
    with pytest.raises(FormatError, match=r"[tx] differs between the files or samples"):
        imported(tmp_path, *files, import_options=ImportOptions(*words))


def test_moving_points_of_as_many_samples_follow_the_axis_of_samples(tmp_path):
    points, values = DRAW.uniform(size=(12, 2, 12)), DRAW.standard_normal((12, 12))
    np.savez(tmp_path / "own.npz", XY=points, a=values, u=values + 1)
    for samples, x in (("last", points[:, 0].T), ("first", points[:, 0])):
        options = ImportOptions("a", "u", "cloud", SPLITS, samples, points="XY")
        url = str(tmp_path / f"{samples}.zarr")
        store = import_files([tmp_path / "own.npz"], url, options)
        np.testing.assert_array_equal(store.values("x"), x)


def test_input_and_target_have_any_numbers_of_channels(tmp_path):
    w = DRAW.standard_normal((5, 12, N))
    np.savez(tmp_path / "own.npz", **dict(zip("abcde", w, strict=True)), f=np.moveaxis(w[:3], 0, 2))
    options = ImportOptions(("a", "b", "c"), ("d", "e"), "nodal", SPLITS)
    store = imported(tmp_path, tmp_path / "own.npz", import_options=options)
    for k, name in enumerate("abc"):
        np.testing.assert_array_equal(store.values(f"a_{name}"), w[k])
    np.testing.assert_array_equal(store.values("u"), w[3:].swapaxes(0, 1))
    options = ImportOptions(
        "f", ("d", "e"), "nodal", SPLITS, input_axes=("sample", "x", "channel"),
        target_axes=("sample", "x"),
    )  # fmt: skip
    url = str(tmp_path / "other.zarr")
    other = import_files([tmp_path / "own.npz"], url, options)
    np.testing.assert_array_equal(other.values("a_c1"), w[1])
    quietly("train", "--data", url, "--model", "fno", "--set", "training.epochs=1",
            "--out", tmp_path / "run")  # fmt: skip


def test_real_beside_complex_arrays_have_a_name_for_each_channel(tmp_path):
    np.savez(tmp_path / "own.npz", z=A + 1j * U, a=A)
    options = ImportOptions(("z", "a"), "a", "nodal", SPLITS)
    with pytest.raises(FormatError, match="is input and target"):
        imported(tmp_path, tmp_path / "own.npz", import_options=options)
    np.savez(tmp_path / "own.npz", z=A + 1j * U, a=A, u=U)
    store = imported(tmp_path, tmp_path / "own.npz", import_options=replace(options, target="u"))
    assert store.raw_attributes_of("a")["channels"] == ["real.z", "imaginary.z", "a"]


def test_different_units_are_refused_or_told(tmp_path):
    for name, unit in (("k.h5", "K"), ("c.h5", "degC")):
        with h5py.File(tmp_path / name, "w") as file:
            file["a"], file["u"] = A, U
            file["u"].attrs["units"] = unit
            file["a"].attrs["units"] = "m"
    files = [tmp_path / "k.h5", tmp_path / "c.h5"]
    with pytest.raises(FormatError, match="u has different units"):
        imported(tmp_path, *files, import_options=ImportOptions("a", "u", "nodal", SPLITS))
    with h5py.File(files[0], "a") as file:
        file["v"] = A
    options = ImportOptions("v", ("u", "a"), "nodal", SPLITS)
    store = imported(tmp_path, files[0], import_options=options)
    assert store.raw_attributes_of("u")["units"] == "K, m"


def test_an_xdmf_file_reads_what_lies_beside_it_alone(tmp_path):
    import meshio

    points = DRAW.uniform(size=(9, 2))
    values = DRAW.standard_normal(9)
    mesh = meshio.Mesh(
        points, [("triangle", np.arange(9).reshape(3, 3))], {"a": values, "u": values}
    )
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "m.xdmf"
    meshio.write(path, mesh)
    options = ImportOptions("a", "u", splits={"train": 1})
    store = imported(tmp_path, path, import_options=options)
    names = [file["name"] for file in store.raw_attributes["imported"]["files"]]
    assert names == ["m.xdmf", "m.h5"]
    secret = tmp_path / "secret.bin"
    secret.write_bytes(values.tobytes())
    text = path.read_text("utf-8")
    for word in (str(tmp_path / "in" / "m.h5"), "../m.h5"):
        path.write_text(text.replace("m.h5", word), "utf-8")
        with pytest.raises(FormatError, match="in the same folder"):
            listing([path])
    binary = text.replace('Format="HDF"', 'Format="Binary"').replace("m.h5:", f"{secret}:")
    path.write_text(binary, "utf-8")
    with pytest.raises(FormatError, match="in the same folder"):
        listing([path])


def test_each_option_of_the_command_reaches_the_import(tmp_path):
    np.savez(tmp_path / "own.npz", a=A, u=U, spots=SHARED, tri=CELLS, rim=np.array([0, 3]))
    quietly(
        "import", tmp_path / "own.npz", "--input", "a", "--target", "u", "--grid", "cloud",
        "--points", "spots", "--cells", "tri", "--edge", "rim", "--split", "train=12",
        "--out", tmp_path / "c.zarr",
    )  # fmt: skip
    domain = domain_of(open_sealed(str(tmp_path / "c.zarr")))
    assert isinstance(domain, Cloud)
    np.testing.assert_array_equal(domain.cells, CELLS)
    assert np.flatnonzero(domain.boundary).tolist() == [0, 3]
    np.savez(tmp_path / "w.npz", w=DRAW.standard_normal((30, 16)), land=np.arange(16) < 9)
    quietly(
        "import", tmp_path / "w.npz", "--input", "w", "--target", "w", "--grid", "nodal",
        "--samples", "none", "--input-axes", "time,x", "--target-axes", "time,x", "--mask", "land",
        "--window", 5, "--stride", 2, "--split", "train=4", "--out", tmp_path / "w.zarr",
    )  # fmt: skip
    assert open_sealed(str(tmp_path / "w.zarr")).values("u").shape == (13, 4, 9)


# xarray datasets in memory.


def dataset(**further: object) -> xr.Dataset:
    return xr.Dataset(
        {"a": (("x", "run"), A.T), "u": (("run", "x"), U, {"units": "K"}), **further},
        {"x": ("x", np.arange(N) / 4, {"units": "m"}), "run": [f"r{k}" for k in range(12)]},
    )


def stored(tmp_path: Path, data: xr.Dataset, **options: object) -> xr.Dataset:
    given = {"input": "a", "target": "u", "grid": "periodic", "splits": SPLITS, **options}
    return xr.open_zarr(from_xarray(data, tmp_path / "x.zarr", **given))  # pyright: ignore


@pytest.mark.parametrize("chunks", [None, {"run": 5}])
def test_a_dataset_in_memory_or_of_dask_becomes_a_store(tmp_path, chunks):
    data = dataset() if chunks is None else dataset().chunk(chunks)
    store = stored(tmp_path, data)
    np.testing.assert_array_equal(store.a.values, A)
    np.testing.assert_array_equal(store.u.values, U)
    np.testing.assert_array_equal(store.x.values, np.arange(N) / 4)
    assert (store.u.attrs["units"], store.x.attrs["units"]) == ("K", "m")


def test_a_trajectory_with_dates_is_cut_into_windows(tmp_path):
    dates = np.datetime64("2000-01-01", "ns") + np.arange(30) * np.timedelta64(6, "h")
    data = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), DRAW.standard_normal((30, 4, 8)))},
        {"time": dates, "lat": np.arange(4.0), "lon": np.arange(8.0)},
    )
    splits = {"train": 4, "test": 2}
    given = {"input": "t2m", "target": "t2m", "splits": splits, "describe": {"window": 5}}
    store = stored(tmp_path, data, **given)
    u = data.t2m.values.transpose(0, 2, 1).reshape(6, 5, 8, 4)
    np.testing.assert_array_equal(store.u.values, u[:, 1:])
    np.testing.assert_array_equal(store.time.values, 6 * np.arange(1, 5))
    assert store.time.attrs["units"] == "hours"


def test_packed_variables_of_a_dataset_are_unpacked(tmp_path):
    packed = (100 * U).astype("i2")
    attributes = {"scale_factor": 0.01, "add_offset": 273.0}
    store = stored(tmp_path, dataset(p=(("run", "x"), packed, attributes)), target="p")
    np.testing.assert_allclose(store.u.values, packed * 0.01 + 273)


def test_arrays_of_positions_and_masks_of_a_dataset_are_named(tmp_path):
    data = dataset(place=("x", np.linspace(0, 3, N)), land=("x", np.arange(N) < 30))
    describe = {"coordinates": {"x": "place"}, "mask": "land"}
    store = stored(tmp_path, data, grid="nodal", describe=describe)
    np.testing.assert_allclose(store.x.values, np.linspace(0, 3, N)[:30])


def test_other_units_are_another_store(tmp_path):
    stored(tmp_path, dataset())
    other = dataset()
    other.u.attrs["units"] = "degC"
    with pytest.raises(StoreError, match="other files"):
        stored(tmp_path, other, resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": "b"}, "the dataset has no variable 'b': it has a, u"),
        ({"sample": "member"}, "lacks the dimension 'member' of the samples"),
        ({"input": "name"}, "name is of type"),
        ({"grid": "periodic,cell"}, "the grid is 'periodic,cell'"),
    ],
)
def test_what_a_dataset_does_not_have_is_refused(tmp_path, options, message):
    names = dataset(name=("run", np.array(["a"] * 12)))
    with pytest.raises(FormatError, match=message):
        stored(tmp_path, names, **options)


# Found by an attack.


@pytest.mark.parametrize("square", [False, True])
def test_a_mesh_in_the_order_of_pictures_is_refused(tmp_path, square):
    n = 8 if square else 5
    x, y = np.meshgrid(np.linspace(0, 2, n), np.linspace(10, 11, 8))  # (8, n): y first
    u = DRAW.standard_normal((12, *x.shape))
    refused(tmp_path, {"a": u, "u": u + 1, "x": x, "y": y}, "x .* varies along its axis 2")
    np.savez(tmp_path / "own.npz", a=u, u=u + 1, x=x, y=y)
    axes = ("sample", "y", "x")
    options = ImportOptions("a", "u", "nodal", SPLITS, input_axes=axes, target_axes=axes)
    store = imported(tmp_path, tmp_path / "own.npz", import_options=options)
    np.testing.assert_allclose(store.values("x"), np.linspace(0, 2, n))
    np.testing.assert_array_equal(store.values("a"), u.swapaxes(1, 2))


@pytest.mark.parametrize(
    ("of_a", "of_u"),
    [
        (("run", "p", "q"), ("run", "q", "p")),
        (("run", "x", "q"), ("run", "q", "x")),
        (("run", "x", "q"), ("run", "time", "x")),
        (("run", "member", "x"), ("run", "member", "x")),
    ],
)
def test_names_of_axes_are_not_contradicted(tmp_path, of_a, of_u):
    square = DRAW.standard_normal((12, 8, 8))
    data = xr.Dataset({"a": (of_a, square), "u": (of_u, square + 1)}, {"x": np.arange(8.0)})
    with pytest.raises(FormatError, match="name the axes by"):
        from_xarray(
            data, tmp_path / "x.zarr", input="a", target="u", sample="run", grid="nodal",
            splits=SPLITS,
        )  # fmt: skip


def test_files_with_axes_in_other_orders_are_refused(tmp_path):
    files = list[Path]()
    for k, order in enumerate(("xy", "yx")):
        files.append(tmp_path / f"{k}.nc")
        u = xr.Dataset(
            {name: (("sample", *order), DRAW.standard_normal((6, 8, 8))) for name in "au"}
        )
        u.to_netcdf(files[-1], engine="scipy")
    with pytest.raises(FormatError, match="a has other axes in some files"):
        imported(tmp_path, *files, import_options=ImportOptions("a", "u", "cell", SPLITS))


def test_a_mask_follows_the_names_of_its_axes(tmp_path):
    mask = np.ones((8, 8), bool)
    mask[2, 5] = False
    data = xr.Dataset({
        "a": (("run", "x", "y"), DRAW.standard_normal((12, 8, 8))),
        "u": (("run", "x", "y"), DRAW.standard_normal((12, 8, 8))),
        "m": (("y", "x"), mask.T),
    })  # fmt: skip
    store = stored(tmp_path, data, grid="nodal", describe={"mask": "m"})
    np.testing.assert_array_equal(store.u.values, data.u.values[:, mask])


def test_uneven_times_of_large_numbers_are_noticed(tmp_path):
    t = 1.7e9 + np.array([0, 60, 120, 700, 800, 2000, 2100, 2200, 3300, 3400, 3500, 3600.0])
    axes = ("time", "x")
    refused(
        tmp_path, {"u": A[:, :8], "t": t}, "windows of the times need equal steps", "u", "u",
        "nodal", {"train": 2}, "none", input_axes=axes, target_axes=axes, window=3,
    )  # fmt: skip


def test_data_of_a_mesh_keep_their_values_whatever_their_names(tmp_path):
    import meshio

    points = DRAW.uniform(size=(9, 2))
    u = DRAW.standard_normal(9)
    data = {"u": u, "edge": 2 * u, "points": 3 * u, "v (m/s)": u}
    mesh = meshio.Mesh(points, [("triangle", np.arange(9).reshape(3, 3))], data)
    meshio.write(tmp_path / "m.vtu", mesh)
    options = ImportOptions("u", "edge_data", splits={"train": 1})
    store = imported(tmp_path, tmp_path / "m.vtu", import_options=options)
    np.testing.assert_array_equal(store.values("u"), 2 * u[None])
    assert any("v (m/s) has a name with other" in line for line in listing([tmp_path / "m.vtu"]))


def test_volumes_have_neither_cells_nor_edge(tmp_path):
    import meshio

    points = DRAW.uniform(size=(8, 3))
    u = DRAW.standard_normal(8)
    cells = [("tetra", [[0, 1, 2, 3], [4, 5, 6, 7]]), ("triangle", [[0, 1, 2]])]
    meshio.write(tmp_path / "m.vtu", meshio.Mesh(points, cells, {"a": u, "u": u}))
    store = imported(
        tmp_path, tmp_path / "m.vtu", import_options=ImportOptions("a", "u", splits={"train": 1})
    )
    assert {"cells", "edge"}.isdisjoint(xr.open_zarr(store.url).variables)
    assert any("are volumes" in line for line in listing([tmp_path / "m.vtu"]))


def test_a_binary_gmsh_file_has_its_data_and_mesh(tmp_path):
    import meshio

    points = np.pad(DRAW.uniform(size=(9, 2)), ((0, 0), (0, 1)))
    tags = np.tile(np.array([2, 1], np.int32), (9, 1))
    data = {"a": points[:, 0], "u": points[:, 1] ** 2, "gmsh:dim_tags": tags}
    cells = [("triangle", np.arange(9).reshape(3, 3))]
    mesh = meshio.Mesh(
        points,
        cells,
        data,
        {key: [np.ones(3, np.int32)] for key in ("gmsh:physical", "gmsh:geometrical")},
    )
    meshio.write(tmp_path / "m.msh", mesh, file_format="gmsh", binary=True)
    assert (tmp_path / "m.msh").read_bytes().startswith(b"$MeshFormat\n4.1 1 8\n")
    words = shlex.split(listing([tmp_path / "m.msh"])[-1])
    assert words[3:9] == ["--input", "a", "--target", "u", "--grid", "cloud"]
    quietly(*words[1:-1], tmp_path / "s.zarr")
    store = open_sealed(str(tmp_path / "s.zarr"))
    np.testing.assert_array_equal(store.values("a"), points[None, :, 0])
    np.testing.assert_array_equal(store.values("u"), points[None, :, 1] ** 2)
    domain = domain_of(store)
    np.testing.assert_array_equal(domain.points, points[:, :2])
    assert isinstance(domain, Cloud)
    np.testing.assert_array_equal(domain.cells, cells[0][1])


def test_units_of_samples_do_not_differ(tmp_path):
    files = list[Path]()
    for k, unit in enumerate(("m", "km", "m")):
        files.append(tmp_path / f"{k}.nc")
        data = xr.Dataset({name: (("x",), A[k], {"units": unit}) for name in "au"})
        data.to_netcdf(files[-1], engine="scipy")
    options = ImportOptions("a", "u", "nodal", {"train": 2}, "files")
    with pytest.raises(FormatError, match="different units: a@units"):
        imported(tmp_path, *files, import_options=options)
    with h5py.File(tmp_path / "g.h5", "w") as file:
        for k, unit in enumerate(("m", "km")):
            for name in "au":
                file[f"{k}/{name}"] = A[k]
                file[f"{k}/{name}"].attrs["units"] = unit
    with pytest.raises(FormatError, match="a@units differs between the groups"):
        listing([tmp_path / "g.h5"])


def test_a_file_is_given_once(tmp_path):
    np.savez(tmp_path / "own.npz", **PAIR)
    with pytest.raises(FormatError, match="a file is given twice"):
        imported(tmp_path, tmp_path / "own.npz", tmp_path / "own.npz", import_options=OF_CLOUD)


@pytest.mark.parametrize(
    ("attribute", "value", "fault"),
    [
        ("valid_min", "0", None), ("valid_range", "-100, 100", None), ("scale_factor", "0.1", None),
        ("scale_factor", [0.1, 0.2], "scale_factor is"), ("add_offset", "none", "add_offset is"),
    ],
)  # fmt: skip
def test_texts_of_packing_are_numbers_or_refused(tmp_path, attribute, value, fault):
    v = (10 * np.abs(A)).astype("i2")
    data = xr.Dataset({name: (("sample", "x"), v, {attribute: value}) for name in "au"})
    data.to_netcdf(tmp_path / "p.nc", engine="scipy")
    options = ImportOptions("a", "u", "nodal", SPLITS)
    if fault is not None:
        with pytest.raises(FormatError, match=f"a: the attribute {fault}"):
            imported(tmp_path, tmp_path / "p.nc", import_options=options)
        return
    store = imported(tmp_path, tmp_path / "p.nc", import_options=options)
    factor = 0.1 if attribute == "scale_factor" else 1
    np.testing.assert_allclose(store.values("u"), factor * v)


def test_a_companion_file_with_a_link_is_refused(tmp_path):
    import meshio

    mesh = meshio.Mesh(DRAW.uniform(size=(9, 2)), [("triangle", [[0, 1, 2]])], {"u": A[0, :9]})
    meshio.write(tmp_path / "m.xdmf", mesh)
    with h5py.File(tmp_path / "m.h5", "a") as file:
        file["secret"] = h5py.ExternalLink("../s.h5", "/d")
    with pytest.raises(FormatError, match="is a link"):
        listing([tmp_path / "m.xdmf"])


def test_names_that_differ_in_a_stroke_are_two_arrays(tmp_path):
    data = xr.Dataset({"v/a": (("run", "x"), A), "v.a": (("run", "x"), U)})
    store = stored(tmp_path, data, input="v/a", target="v.a")
    np.testing.assert_array_equal(store.a.values, A)


def test_one_array_a_file_is_listed_as_one_sample_a_file(tmp_path):
    files = list[Path]()
    for k in range(5):
        files.append(tmp_path / f"s{k}.npy")
        np.save(files[-1], DRAW.standard_normal((6, 8)))
    words = listing(files)[-1].split()
    assert words[words.index("--input") + 1] == "values"


# Inputs on finer grids than the target.


@pytest.mark.parametrize(
    ("grid", "fine", "coarse", "points"),
    [
        ("nodal", 13, 5, slice(None, None, 3)),
        ("periodic", 16, 4, slice(None, None, 4)),
        ("cell", 15, 5, slice(1, None, 3)),
    ],
)
def test_an_input_on_a_finer_grid_is_read_at_the_points_of_the_target(
    tmp_path, grid, fine, coarse, points
):
    a, u = DRAW.standard_normal((12, fine, fine)), DRAW.standard_normal((12, coarse, coarse))
    np.savez(tmp_path / "own.npz", a=a, u=u)
    said = list[str]()
    options = ImportOptions("a", "u", grid, SPLITS)
    store = imported(tmp_path, tmp_path / "own.npz", import_options=options, tell=said.append)
    np.testing.assert_array_equal(store.values("a"), a[:, points, points])
    np.testing.assert_array_equal(store.values("u"), u)
    assert said[0].startswith(f"a is read at every {points.step}. and {points.step}. point")


@pytest.mark.parametrize(
    ("grid", "n", "m"),
    [("nodal", 12, 5), ("nodal", 5, 13), ("periodic", 15, 4), ("cell", 16, 4), ("cell", 4, 8)],
)
def test_points_that_the_input_does_not_have_are_refused(tmp_path, grid, n, m):
    a, u = DRAW.standard_normal((12, n)), DRAW.standard_normal((12, m))
    message = f"on a different grid: it has {n} points along x, the target {m}"
    refused(tmp_path, {"a": a, "u": u}, message, "a", "u", grid, SPLITS)
