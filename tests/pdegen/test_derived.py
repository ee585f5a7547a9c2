"""Derived stores: the noise of `pdegen.sampling.noise` on a store, whoever writes them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from pdegen.generation.derived import NoiseJob, add_noise, at_levels
from pdegen.generation.generate import generate
from pdegen.generation.verify import verify
from pdegen.recipe import load_recipe
from pdegen.sampling.noise import Noise, SensorNoise, pointwise_std
from pdegen.schema import SchemaError
from pdegen.store.reading import Record, Shards, Store, StoreError, open_sealed
from pdegen.store.writing import missing, seal
from tests.pdegen.conftest import SMALL
from tests.stores import faults, interrupted, objects_of, unseal, write_shard

LEVELS = (0.0, 0.01, 0.1)
ENSEMBLE = at_levels({}, LEVELS)
DARCY = {
    "samples": 14,
    "shard": 7,
    "problem.resolution": 9,
    "problem.field.modes": 8,
    "problem.solver.refinement": 1,
    "splits.train": 8,
    "splits.validation": 2,
    "splits.test": 3,  # one sample is in no split
}


@pytest.fixture(scope="module")
def darcy(tmp_path_factory):
    """A sealed store on 9 x 9 cells, to be read only."""
    recipe = load_recipe("darcy-quick").with_overrides(DARCY)
    return generate(recipe, str(tmp_path_factory.mktemp("darcy") / "darcy.zarr"), workers=1)


@pytest.fixture(scope="module")
def trajectory(tmp_path_factory):
    recipe = load_recipe("burgers-trajectory").with_overrides({**SMALL, "times": [0.05, 0.1]})
    return generate(recipe, str(tmp_path_factory.mktemp("times") / "times.zarr"), workers=1)


@pytest.fixture(scope="module")
def noisy(darcy, tmp_path_factory):
    """The solutions of a store with noise at three levels, read-only."""
    url = str(tmp_path_factory.mktemp("noisy") / "noisy.zarr")
    return add_noise(darcy.url, "u", ENSEMBLE, url, workers=1)


@pytest.fixture
def parent(darcy, tmp_path):
    """A copy of the parent, to be changed."""
    return Store(str(shutil.copytree(darcy.url, tmp_path / "parent.zarr")))


def assert_same(store, expected):
    assert store.sealed
    assert objects_of(store) == objects_of(expected)


def everything(path):
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))}


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def unfinished(parent, url, noises=ENSEMBLE):
    """Two of five shards are written."""
    with interrupted(NoiseJob, sample=6):
        add_noise(parent, "u", noises, url, workers=1)
    return Store(url)


# what it holds


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        ("darcy", {"kind": "ensemble", "seed": 3}),
        ("darcy", {"kind": "relative"}),
        ("darcy", {"kind": "snr"}),
        ("darcy", {"kind": "multiplicative"}),
        ("darcy", {"kind": "correlated", "length": 0.2}),
        ("darcy", {"kind": "published"}),
        ("finished", {"kind": "ensemble"}),
        ("finished", {"kind": "correlated"}),
        ("trajectory", {"kind": "ensemble"}),
        ("trajectory", {"kind": "sensors", "fraction": 0.3}),
    ],
    ids=lambda word: word if isinstance(word, str) else word["kind"],
)
def test_each_split_is_the_model_applied_to_the_parent(request, tmp_path, source, declared):
    parent = request.getfixturevalue(source)
    noises = at_levels(declared, LEVELS)
    store = add_noise(parent.url, "u", noises, str(tmp_path / "noisy.zarr"), workers=1)
    assert faults(store) == []
    u, found = (s.values("u") for s in (parent, store))
    assert found.shape == (len(u), 3, *u.shape[1:])
    assert found.dtype == u.dtype == np.float32
    splits = parent.raw_attributes["splits"]
    std = pointwise_std([u[slice(*splits["train"])]])
    assert (store.values("deviation") == std).all()
    for start, stop in splits.values():
        for k, noise in enumerate(noises):
            expected = noise.build()(u[start:stop], noise.seed, range(start, stop), std)
            np.testing.assert_array_equal(found[start:stop, k], expected)


def test_what_has_no_noise_is_that_of_the_parent(darcy, noisy):
    parent, derived = xr.open_zarr(darcy.url), xr.open_zarr(noisy.url)
    assert derived["u"].dims == ("sample", "level", "x", "y")
    for name in ("a", "residual", "sample", "x", "y"):
        assert parent[name].variable.identical(derived[name].variable)
    np.testing.assert_array_equal(derived["level"], LEVELS)
    np.testing.assert_array_equal(derived["u"].sel(level=0.0), parent["u"])  # bit for bit
    assert derived["deviation"].dims == ("x", "y")
    assert "deviation" in derived["u"].coords
    for key in ("recipe", "equation", "splits", "label_error"):
        assert noisy.raw_attributes[key] == darcy.raw_attributes[key]


def test_it_names_its_parent_and_its_noise(darcy, noisy):
    parent, noise = noisy.raw_attributes["parent"], noisy.raw_attributes["noise"]
    assert noisy.derived
    assert not darcy.derived
    assert parent["recipe"] == "darcy-quick"
    for key in ("fingerprint", "content", "provenance"):
        assert parent[key] == darcy.raw_attributes[key]
    assert noisy.raw_attributes["fingerprint"] != darcy.raw_attributes["fingerprint"]
    assert noisy.raw_attributes["content"] != darcy.raw_attributes["content"]
    stated = {key: noise[key] for key in ("variable", "kind", "seed", "levels")}
    assert stated == {"variable": "u", "kind": "ensemble", "seed": 0, "levels": list(LEVELS)}


def test_the_coefficient_can_have_the_noise_too(darcy, tmp_path):
    store = add_noise(darcy.url, "a", at_levels({}, [0.1]), str(tmp_path / "noisy.zarr"))
    assert store.array("a").shape == (14, 1, 9, 9)
    np.testing.assert_array_equal(store.values("u"), darcy.values("u"))


def test_sensors_are_stored(darcy, tmp_path):
    noises = at_levels({"kind": "sensors", "fraction": 0.2, "seed": 5}, [0.0, 0.1])
    store = add_noise(darcy.url, "u", noises, str(tmp_path / "noisy.zarr"))
    observed = store.values("observed")
    assert observed.sum() == round(0.2 * 81)
    np.testing.assert_array_equal(observed, SensorNoise(0.1, 0.2).observed((9, 9), 5))
    u = store.values("u")
    assert (u[..., ~observed] == 0).all()
    np.testing.assert_array_equal(u[:, 0, observed], darcy.values("u")[:, observed])


# the same bits whoever writes them


def test_workers_leave_the_bits_unchanged(darcy, noisy, tmp_path, cluster):
    for workers, scheduler in ((None, cluster), (2, "threads")):
        url = str(tmp_path / f"{workers}.zarr")
        store = add_noise(darcy.url, "u", ENSEMBLE, url, workers=workers, scheduler=scheduler)
        assert_same(store, noisy)


def test_a_shard_of_the_parent_is_compared_once_for_all_levels(parent, tmp_path, monkeypatch):
    compared, original = list[tuple[str, int]](), Shards._compared

    def counted(shards, opened, shard, *others):
        if shards.url == parent.url:
            compared.append((shards.array.name, shard))
        return original(shards, opened, shard, *others)

    levels = at_levels({"kind": "ensemble", "seed": 0}, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    monkeypatch.setattr(Shards, "_compared", counted)
    noisy = add_noise(parent.url, "u", levels, str(tmp_path / "noisy.zarr"), workers=1)
    assert noisy.shards > 2 * parent.shards
    assert sorted(compared) == sorted(
        (name, shard) for name in parent.variables for shard in range(parent.shards)
    )


def test_the_shards_of_the_parent_leave_the_values_unchanged(noisy, tmp_path):
    recipe = load_recipe("darcy-quick").with_overrides({**DARCY, "shard": 4})
    parent = generate(recipe, str(tmp_path / "parent.zarr"), workers=1)
    store = add_noise(parent.url, "u", ENSEMBLE, str(tmp_path / "noisy.zarr"))
    assert store.shard_size != noisy.shard_size
    for name in ("u", "deviation"):
        np.testing.assert_array_equal(store.values(name), noisy.values(name))
    assert store.raw_attributes["statistics"] == noisy.raw_attributes["statistics"]


def test_a_store_on_an_object_store(darcy, noisy, tmp_path):
    url = f"memory://{tmp_path}/noisy.zarr"
    store = add_noise(darcy.url, "u", ENSEMBLE, url)
    assert store.raw_attributes["content"] == noisy.raw_attributes["content"]
    assert faults(store) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda root: None,
        lambda root: (root / Record.key(0)).unlink(),
        lambda root: (root / "u/c/1/0/0/0").unlink(),
        lambda root: flip(root / "a/c/0/0/0"),
    ],
    ids=["none", "record", "object", "bit"],
)
def test_resumed_is_the_same_bits_as_uninterrupted(darcy, noisy, tmp_path, damage):
    store = unfinished(darcy.url, str(tmp_path / "noisy.zarr"))
    assert missing(store) == [2, 3, 4]
    with pytest.raises(StoreError, match=r"pdegen noise \.\.\. .*--resume"):
        open_sealed(store.url)
    damage(Path(store.url))
    assert_same(add_noise(darcy.url, "u", ENSEMBLE, store.url, resume=True), noisy)


def test_a_damaged_sealed_store_is_mended(darcy, noisy, tmp_path):
    store = Store(str(shutil.copytree(noisy.url, tmp_path / "noisy.zarr")))
    flip(tmp_path / "noisy.zarr/u/c/3/0/0/0")
    assert len(faults(store)) > 0
    assert_same(add_noise(darcy.url, "u", ENSEMBLE, store.url, resume=True), noisy)


def test_a_parent_that_moved_is_the_same_parent(parent, noisy, tmp_path):
    store = unfinished(parent.url, str(tmp_path / "noisy.zarr"))
    moved = str(Path(parent.url).rename(tmp_path / "moved.zarr"))
    assert_same(add_noise(moved, "u", ENSEMBLE, store.url, resume=True), noisy)


# what stands in the way: nothing is written


@pytest.fixture
def refused(darcy, tmp_path):
    def run(match, parent=darcy.url, variable="u", noises=ENSEMBLE, url=None, **flags):
        before = everything(tmp_path)
        with pytest.raises(StoreError, match=match) as error:
            add_noise(parent, variable, noises, url or str(tmp_path / "noisy.zarr"), **flags)
        assert everything(tmp_path) == before
        assert "\n" not in str(error.value)

    return run


def test_a_parent_that_is_no_finished_store_is_refused(refused, parent, tmp_path):
    refused("no such store", str(tmp_path / "absent.zarr"))
    unseal(parent)
    refused("not sealed", parent.url)


@pytest.mark.parametrize("key", ["u/c/0/0/0", Record.key(1)])
def test_a_damaged_parent_is_refused(refused, parent, key):
    path = Path(parent.url) / key
    path.write_bytes(path.read_bytes()[:-3])
    refused("parent.zarr is damaged: pdegen verify lists the damaged shards", parent.url)


def test_an_unknown_variable_is_refused(refused):
    refused("'w' is not in .*: known: a, u", variable="w")
    refused("'residual' is no field of", variable="residual")
    refused("'x' is not in", variable="x")


def test_noise_on_noise_is_refused(refused, noisy):
    refused("has noise already", noisy.url)


@pytest.mark.parametrize("place", ["parent.zarr", "parent.zarr/noisy", "x/../parent.zarr", "."])
@pytest.mark.parametrize("flags", [{}, {"overwrite": True}, {"resume": True}])
def test_a_place_in_the_parent_is_refused(refused, parent, tmp_path, place, flags):
    refused("must lie outside of", parent.url, url=str(tmp_path / place), **flags)


def test_a_link_to_the_parent_is_refused(refused, parent, tmp_path):
    (tmp_path / "link.zarr").symlink_to(parent.url)
    refused("must lie outside of", parent.url, url=str(tmp_path / "link.zarr"), overwrite=True)


def test_a_store_that_exists_is_left_alone(refused, parent, darcy, tmp_path):
    refused("exists and is finished: use it, or --overwrite", url=parent.url)
    refused("is not a store with noise", url=parent.url, resume=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.txt").write_text("mine")
    for flags in ({}, {"resume": True}, {"overwrite": True}):
        refused("not a pdegen store", url=str(tmp_path / "folder"), **flags)
    store = add_noise(darcy.url, "u", ENSEMBLE, parent.url, overwrite=True)
    assert faults(store) == []


def test_another_noise_is_not_resumed(refused, darcy, tmp_path):
    url = unfinished(darcy.url, str(tmp_path / "noisy.zarr")).url
    for noises in (at_levels({"seed": 1}, LEVELS), at_levels({}, LEVELS[:2]),
                   at_levels({"kind": "snr"}, LEVELS)):  # fmt: skip
        refused("was made with other noise: .*ensemble", url=url, noises=noises, resume=True)
    refused("was made with other noise", url=url, variable="a", resume=True)


def test_a_changed_parent_is_not_resumed(refused, parent, tmp_path):
    url = unfinished(parent.url, str(tmp_path / "noisy.zarr")).url
    values = {name: np.asarray(parent.values(name)[7:]) for name in parent.variables}
    write_shard(parent, 1, {**values, "u": 2 * values["u"]})
    seal(parent)
    assert verify(parent.url, check_values=False).faults == []
    refused("parent.zarr has changed since", parent.url, url=url, resume=True)


def test_a_parent_that_changes_meanwhile_stops_the_job(parent, tmp_path):
    def change(p):
        values = {name: np.asarray(parent.values(name)[7:]) for name in parent.variables}
        write_shard(parent, 1, {**values, "u": 2 * values["u"]})
        seal(parent)

    url = str(tmp_path / "noisy.zarr")
    # the next task may open the parent before, within or after the change
    said = (
        "has changed since|not the record that was sealed|differs from the seal|bytes differ|"
        "differ from the recorded digest"
    )
    with pytest.raises(StoreError, match=said):
        add_noise(parent.url, "u", ENSEMBLE, url, workers=1, progress=change)
    assert not Store(url).sealed


def test_another_parent_is_not_resumed(refused, darcy, tmp_path):
    url = unfinished(darcy.url, str(tmp_path / "noisy.zarr")).url
    recipe = load_recipe("darcy-quick").with_overrides({**DARCY, "seed": 1})
    other = generate(recipe, str(tmp_path / "other.zarr"))
    refused("was made from another store .darcy-quick", other.url, url=url, resume=True)


def test_a_damaged_deviation_is_not_used(darcy, tmp_path):
    url = unfinished(darcy.url, str(tmp_path / "noisy.zarr")).url
    flip(Path(url) / "deviation/c/0/0")
    with pytest.raises(StoreError, match="the deviation is damaged"):
        NoiseJob(darcy.url, "u", ENSEMBLE).compute(Store(url), range(2))
    assert faults(add_noise(darcy.url, "u", ENSEMBLE, url, resume=True)) == []


def test_noise_beyond_the_stored_type_is_refused():
    with pytest.raises(SchemaError, match="level of multiplicative noise must be <= 1e6"):
        at_levels({"kind": "multiplicative"}, [0.0, 1e45])


# declarations


@pytest.mark.parametrize(
    ("declared", "levels", "message"),
    [
        ({}, [], "at least one level"),
        ({}, [0.1, 0.0, 0.1], "levels must differ, got 0.1 twice"),
        ({}, [0.0, -0.0], "levels must differ"),
        ({}, [0.1, -0.1], "the level of ensemble noise must be >= 0, got -0.1"),
        ({"level": 0.1}, [0.1], "a list of levels, not the key 'level'"),
        ({"fresh": True}, [0.1], "unknown key 'fresh'"),
    ],
)
def test_impossible_levels_are_refused_in_one_line(declared, levels, message):
    with pytest.raises(SchemaError) as error:
        at_levels(declared, levels)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_levels_are_kept_in_their_order():
    assert at_levels({"kind": "snr"}, [20, -3.0]) == (
        Noise(kind="snr", level=20.0), Noise(kind="snr", level=-3.0))  # fmt: skip


def test_correlated_noise_is_for_functions_of_space(refused, trajectory):
    noises = at_levels({"kind": "correlated"}, [0.1])
    refused("is for functions of space, u of .* has the axis time", trajectory.url, noises=noises)
