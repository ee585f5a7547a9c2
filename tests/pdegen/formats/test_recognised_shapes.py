"""Published files of shapes, of samples with points of their own: their roles and splits."""

import numpy as np
import pytest

from operators.data import read_pairs
from pdegen.domains import Cloud, Curvilinear
from pdegen.formats.arrays import FormatError
from pdegen.formats.plan import ImportOptions
from pdegen.formats.recognised import recognised_plan
from pdegen.formats.sandbox import merged, open_file
from pdegen.recipe import load_recipe
from pdegen.store.format import Physics
from tests.pdegen.formats.files import hdf5, imported, mat5, mat73, random, trains, value
from tests.stores import faults

FEW = ImportOptions(splits={"train": 3, "validation": 1, "test": 2})


def has_roles(store, problem, *keys):
    """Attributes of the variables of a store are those of the recipe of the same equation."""
    shared = [one for one in problem.variables() if one.name in store.arrays]
    assert shared
    for variable in shared:
        found = store.raw_attributes_of(variable.name)
        for key in keys:
            assert found.get(key) == variable.attributes.get(key), (variable.name, key)


def unit_cells(tmp_path, samples=12, points=36):
    """Files in the layout of Random_UnitCell: samples on the last axis, of theta on the first."""
    arrays = {
        "XY": np.random.default_rng(1).uniform(0, 1, (points, 2, samples)),
        "sigma": np.random.default_rng(2).uniform(1, 900, (points, samples)),
        "rr": np.random.default_rng(3).uniform(0.2, 0.4, (42, samples)),
        "theta": random(samples, 10),
    }
    for name, values in arrays.items():
        np.save(tmp_path / f"Random_UnitCell_{name}_10.npy", values)
    return arrays, sorted(tmp_path.glob("Random_UnitCell_*.npy"))


def test_unit_cells_have_the_roles_of_the_recipe(tmp_path):
    arrays, files = unit_cells(tmp_path)
    store = imported(tmp_path, *files, import_options=ImportOptions(splits={"train": 8, "test": 2}))
    for k, name in enumerate("xy"):
        assert np.array_equal(value(store, name), arrays["XY"][:, k].T)
    assert np.array_equal(value(store, "u"), arrays["sigma"].T)
    assert np.array_equal(value(store, "radius"), arrays["rr"].T)
    assert np.array_equal(value(store, "theta"), arrays["theta"])
    problem = load_recipe("elasticity-quick").problem
    has_roles(store, problem, "role", "long_name", "coordinates")
    assert store.raw_attributes["domain"] == Cloud((36,), 2).attributes()
    assert faults(store) == []
    pairs = read_pairs(store.url, "train", input=["x", "y"])
    np.testing.assert_array_equal(pairs.all.per_sample["x"], pairs.inputs)
    assert pairs.all.per_sample["parameters"].shape == (8, 52)


def test_a_cloud_has_no_grid(tmp_path):
    _, files = unit_cells(tmp_path)
    with pytest.raises(FormatError, match="the points are a cloud, not a grid: leave 'cell' out"):
        imported(tmp_path, *files, import_options=ImportOptions(grid="cell"))


def pipes(tmp_path, samples=6):
    """Files in the layout of Pipe."""
    shape = (samples, 17, 9)
    arrays = {"X": random(*shape), "Y": random(*shape, seed=1), "Q": random(samples, 3, 17, 9)}
    for name, values in arrays.items():
        np.save(tmp_path / f"Pipe_{name}.npy", values)
    return arrays, sorted(tmp_path.glob("Pipe_*.npy"))


def test_pipes_have_the_roles_of_the_recipe(tmp_path):
    arrays, files = pipes(tmp_path)
    store = imported(tmp_path, *files, import_options=FEW)
    for name in "xy":
        assert np.array_equal(value(store, name), arrays[name.upper()])
    for k, name in enumerate("uvp"):
        assert np.array_equal(value(store, name), arrays["Q"][:, k])
    has_roles(
        store, load_recipe("pipe-quick").problem, "role", "long_name", "coordinates", "viscosity"
    )
    assert store.raw_attributes["domain"] == Curvilinear((17, 9), 2).attributes()
    assert faults(store) == []
    pairs = read_pairs(store.url, "train", input=["x", "y"])
    np.testing.assert_array_equal(pairs.all.per_sample["x"], pairs.inputs)
    assert pairs.u.shape[:3] == (3, 17, 9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_flux_of_published_pipes_shows_spikes(tmp_path, dtype):
    """It is that of the recipe, and of samples whose outlet is spoilt far larger."""
    labels = load_recipe("pipe-quick").with_overrides({"problem.resolution": 33}).problem.compute(
        0, range(6)
    )  # fmt: skip
    q = np.stack([labels[name] for name in "uvp"], axis=1).astype(dtype)
    q[4, 0, -1, 29:-1] = -1.8
    for name, values in {"X": labels["x"], "Y": labels["y"], "Q": q}.items():
        np.save(tmp_path / f"Pipe_{name}.npy", values)
    store = imported(tmp_path, *sorted(tmp_path.glob("Pipe_*.npy")), import_options=FEW)
    flux, sound = value(store, "flux"), np.arange(6) != 4
    assert flux.dtype == np.float64
    assert "type_in_file" not in store.raw_attributes_of("flux")
    np.testing.assert_allclose(flux[sound], labels["flux"][sound], rtol=0, atol=1e-6)
    assert flux[4] > 2 * flux[sound].max()
    assert store.raw_attributes["imported"]["variables"]["flux"]["number"] == "flow_spread"
    assert faults(store) == []
    assert read_pairs(store.url, "train", input=["x", "y"]).u.shape[0] == 3


@pytest.mark.parametrize("size", [(9, 8), (9, 1), (1, 9)])
def test_pipes_with_an_even_number_of_nodes_across_or_of_a_line_are_unknown(tmp_path, size):
    arrays = {"X": random(6, *size), "Y": random(6, *size), "Q": random(6, 3, *size)}
    for name, values in arrays.items():
        np.save(tmp_path / f"Pipe_{name}.npy", values)
    with pytest.raises(FormatError, match="not a recognised file"):
        imported(tmp_path, *sorted(tmp_path.glob("Pipe_*.npy")), import_options=FEW)


# forging


def blocks(samples, dtype=float):
    """Arrays in the layout of plas_N987_T20: blocks are numbered from the right and from above,
    heights of dies run the other way, and displacements stand beside positions."""
    rng, shape = np.random.default_rng(0), (samples, 101, 31, 20)
    die, u = rng.uniform(15, 24, (samples, 101)), rng.normal(size=(*shape, 2))
    i, j = np.arange(101)[:, None, None], np.arange(31)[:, None]
    rest = np.stack(np.broadcast_arrays(0.35 - 0.5 * i, 14.9 - 0.5 * j), axis=-1)
    return {"input": die.astype(dtype), "output": np.concatenate([rest + u, u], -1).astype(dtype)}


@pytest.mark.parametrize("write", [mat5, mat73], ids=lambda f: f.__name__)
def test_forged_blocks_have_the_roles_of_the_recipe(tmp_path, write):
    arrays = blocks(6)
    store = imported(tmp_path, write(tmp_path / "plas_N987_T20.mat", arrays), import_options=FEW)
    u = arrays["output"][:, ::-1, ::-1, :, 2:].transpose(0, 3, 4, 1, 2)
    np.testing.assert_array_equal(value(store, "u"), u)
    np.testing.assert_array_equal(value(store, "a"), np.repeat(arrays["input"][..., None], 31, -1))
    problem = load_recipe("plasticity").problem
    has_roles(store, problem, "role", "channels", "units", "coordinates")
    assert store.raw_attributes["domain"] == problem.domain.attributes()
    np.testing.assert_array_equal(value(store, "time"), problem.coordinates()[0].values)
    (said,) = [
        v for name, v in store.raw_attributes["imported"]["variables"].items() if name == "u"
    ]
    assert (said["channels"], said["backwards"]) == ([2, 4], ["x", "y"])
    assert faults(store) == []
    trains(store)


def sections(tmp_path, samples=6, size=(9, 5)):
    """Files in the layout of NACA_Cylinder: nodes, and five functions of them."""
    arrays = {"X": random(samples, *size), "Y": random(samples, *size, seed=1)}
    arrays["Q"] = random(samples, 5, *size, seed=2)
    for name, values in arrays.items():
        np.save(tmp_path / f"NACA_Cylinder_{name}.npy", values)
    return arrays, sorted(tmp_path.glob("NACA_Cylinder_*.npy"))


def test_sections_have_the_roles_of_the_recipe(tmp_path):
    arrays, files = sections(tmp_path)
    store = imported(tmp_path, *files, import_options=ImportOptions(splits={"train": 3, "test": 2}))
    assert np.array_equal(value(store, "x"), arrays["X"])
    assert np.array_equal(value(store, "y"), arrays["Y"])
    places = {"density": 0, "velocity": slice(1, 3), "pressure": 3, "u": 4}
    for name, place in places.items():
        assert np.array_equal(value(store, name), arrays["Q"][:, place])
    problem = load_recipe("airfoil-quick").problem
    has_roles(store, problem, "role", "long_name", "coordinates", "channels")
    assert store.raw_attributes["domain"] == Curvilinear((9, 5), 2).attributes()
    physics = Physics.of(store.raw_attributes)
    assert (physics.drawing, physics.near) == (problem.physics().drawing, problem.physics().near)
    assert faults(store) == []
    pairs = read_pairs(store.url, "train", input=["x", "y"])
    np.testing.assert_array_equal(pairs.all.per_sample["x"], pairs.inputs)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (lambda f: unit_cells(f, 2000, points=4)[1], [(0, 1000), (1600, 1800), (1800, 2000)]),
        (lambda f: pipes(f, 2310)[1], [(0, 1000), (1200, 1400), (1000, 1200)]),
        (lambda f: pipes(f, 1200)[1], [(0, 1000), None, (1000, 1200)]),
        (lambda f: [hdf5(f / "plas_N987_T20.h5", blocks(170, "u1"))],
         [(0, 10), (10, 90), (90, 170)]),
        (lambda f: sections(f, 1300, size=(3, 2))[1], [(0, 900), (900, 1000), (1000, 1200)]),
    ],
    ids=["unit cells", "pipes", "few pipes", "forging", "airfoils"],
)  # fmt: skip
def test_splits_are_the_published_ones_and_a_validation(tmp_path, files, expected):
    contents = merged([open_file(file, tmp_path) for file in files(tmp_path)])
    plan = recognised_plan(contents, ImportOptions())
    named = zip(("train", "validation", "test"), expected, strict=True)
    assert plan.splits == {name: split for name, split in named if split}


def test_unit_cells_are_known_without_radius_and_numbers(tmp_path):
    _, files = unit_cells(tmp_path)
    few = [file for file in files if "XY" in file.name or "sigma" in file.name]
    store = imported(tmp_path, *few, import_options=ImportOptions(splits={"train": 8, "test": 2}))
    assert set(store.variables) == {"u", "x", "y"}
