import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from pdegen.generation.generate import compute, generate, layout
from pdegen.recipe import load_recipe
from pdegen.store.objects import Objects
from pdegen.store.reading import Record, Store, StoreError, open_sealed
from pdegen.store.writing import lay_out, missing, seal
from tests.pdegen.conftest import SMALL
from tests.stores import faults, resealed, with_attributes, write_shard


@pytest.fixture
def empty(small, tmp_path):
    """A store that is laid out and holds no data."""
    return lay_out(str(tmp_path / "empty.zarr"), layout(small))


@pytest.fixture(scope="module")
def trajectory(tmp_path_factory):
    recipe = load_recipe("burgers-trajectory").with_overrides({**SMALL, "times": [0.05, 0.1, 0.2]})
    return generate(recipe, str(tmp_path_factory.mktemp("times") / "times.zarr"), workers=1)


def path_of(store, key):
    return Path(store.url) / key


def flip(path):
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


# what any xarray user opens


def test_it_opens_with_plain_xarray(finished, small):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = xr.open_zarr(finished.url)
    assert dict(dataset.sizes) == {"sample": 12, "x": 32}
    assert dataset["a"].dims == dataset["u"].dims == ("sample", "x")
    assert dataset["error"].dims == ("sample",)
    assert dataset["a"].dtype == dataset["u"].dtype == np.float32
    assert dataset["error"].dtype == np.float64
    np.testing.assert_array_equal(dataset["x"], np.arange(32) / 32)
    np.testing.assert_array_equal(dataset["sample"], np.arange(12))
    assert float(dataset["time"]) == small.problem.times[0]
    assert "time" in dataset["u"].coords


def test_several_times_are_a_dimension(trajectory):
    dataset = xr.open_zarr(trajectory.url)
    assert dataset["u"].dims == ("sample", "time", "x")
    assert dataset["a"].dims == ("sample", "x")
    np.testing.assert_array_equal(dataset["time"], [0.05, 0.1, 0.2])
    assert dataset["u"].sel(time=0.1, x=0.5).shape == (12,)
    assert faults(trajectory) == []


def test_it_says_what_it_holds(finished, small):
    attributes = xr.open_zarr(finished.url).attrs
    assert attributes["equation"].startswith("u_t + u u_x = viscosity u_xx")
    assert attributes["title"] == small.headline
    assert attributes["sealed"] is True
    assert attributes["fingerprint"] == small.fingerprint
    assert attributes["recipe"] == small.model_dump(mode="json")
    assert attributes["splits"] == {"train": [0, 7], "validation": [8, 10], "test": [10, 12]}
    assert set(attributes["statistics"]) == {"a", "u", "error"}
    assert {"pdegen", "python", "numpy", "zarr"} <= set(attributes["provenance"])
    dataset = xr.open_zarr(finished.url)
    for name in ("a", "u", "error", "x", "time"):
        assert dataset[name].attrs["units"] == "1", name
        assert dataset[name].attrs["long_name"], name
    assert (dataset["a"].attrs["role"], dataset["u"].attrs["role"]) == ("input", "target")


def test_it_holds_what_was_computed(finished, small):
    expected = compute(small, range(12))
    for name in ("a", "u", "error"):
        np.testing.assert_array_equal(finished.values(name), expected[name])
        np.testing.assert_array_equal(finished.values(name, range(3, 8)), expected[name][3:8])


def test_statistics_are_those_of_the_training_split(finished):
    for name, statistics in finished.raw_attributes["statistics"].items():
        values = np.asarray(finished.values(name)[:7], np.float64)
        assert statistics["mean"] == pytest.approx(values.mean(), rel=1e-12, abs=1e-15)
        assert statistics["std"] == pytest.approx(values.std(), rel=1e-12)


# writing


def test_a_written_shard_is_recorded(empty, small):
    values = compute(small, range(5, 10))
    record = write_shard(empty, 1, values)
    assert empty.record(1) == record
    assert (record.shard, record.samples, record.skipped) == (1, (5, 10), {})
    assert missing(empty) == [0, 2]
    np.testing.assert_array_equal(empty.values("u", range(5, 10)), values["u"])
    assert np.isnan(zarr.open_array(f"{empty.url}/u", mode="r")[:5]).all()  # never written


@pytest.mark.parametrize("name", ["a", "u", "error"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_no_number_is_refused_by_its_sample(empty, small, name, value):
    values = compute(small, range(5, 10))
    values[name][2] = value
    with pytest.raises(ValueError, match=f"{name}: sample 7 is not finite"):
        write_shard(empty, 1, values)
    assert all(empty.objects.keys(f"{variable}/c") == [] for variable in ("a", "u", "error"))
    assert empty.objects.keys("records") == []


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("u", lambda u: u.astype(np.float64) * 1e39, "u: sample 5 is not finite"),  # for float32
        ("a", lambda a: a[:, :16], r"a: expected shape \(5, 32\), got \(5, 16\)"),
        ("u", lambda u: u[:4], r"u: expected shape \(5, 32\), got \(4, 32\)"),
        ("u", lambda u: u[:, None], r"u: expected shape \(5, 32\), got \(5, 1, 32\)"),
        ("error", lambda error: error[:, None], r"error: expected shape \(5,\), got \(5, 1\)"),
        ("u", None, "u: the values are missing"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_values_that_do_not_fit_are_refused(empty, small, name, change, message):
    values = compute(small, range(5, 10))
    value = values.pop(name)
    if change:
        values[name] = change(value)
    with pytest.raises(ValueError, match=message):
        write_shard(empty, 1, values)
    assert empty.objects.keys("a/c") == []


# reading


def test_values_that_are_damaged_after_they_were_read_are_refused(store):
    values = store.values("u", range(5))
    path = path_of(store, "u/c/0/0")
    flip(path)
    for opened in (store, Store(store.url)):
        message = "u, samples .* are damaged .*differ from the recorded digest.*pdegen verify"
        with pytest.raises(StoreError, match=message):
            opened.values("u", range(5))
    flip(path)
    assert np.array_equal(store.values("u", range(5)), values)
    path.unlink()
    with pytest.raises(StoreError, match=r"u, samples .* are damaged"):
        store.values("u", range(5))


# sealing


def test_only_a_complete_store_is_sealed(empty, small):
    for shard in (0, 2):
        samples = empty.shard_range(shard)
        write_shard(empty, shard, compute(small, samples))
    with pytest.raises(StoreError, match="shard 1 has no record"):
        seal(empty)
    assert not Store(empty.url).sealed
    write_shard(empty, 1, compute(small, range(5, 10)))
    assert not Store(empty.url).sealed
    assert seal(empty).sealed
    assert Store(empty.url).sealed
    assert faults(empty.url) == []


def test_what_a_failed_write_left_is_not_sealed(empty, small, monkeypatch):
    for shard in range(empty.shards):
        write_shard(empty, shard, compute(small, empty.shard_range(shard)))
    write = Objects.write

    def failing(self, key, data, check=None):
        write(self, key, data, check)
        if key == "seal.json":
            path_of(empty, f"README.md.{32 * '0'}.partial").write_bytes(b"half")

    monkeypatch.setattr(Objects, "write", failing)
    assert not list(Path(seal(empty).url).rglob("*.partial"))


def test_an_unsealed_store_is_refused_with_the_way_to_finish_it(empty, small):
    write_shard(empty, 0, compute(small, range(5)))
    with pytest.raises(StoreError) as error:
        open_sealed(empty.url)
    message = str(error.value)
    assert "is not sealed (1 of 3 shards are written)" in message
    assert f"pdegen generate burgers-quick ... --out {empty.url}, with --resume" in message


def test_the_content_digest_is_of_the_data_alone(finished, small, tmp_path):
    again = generate(small, str(tmp_path / "again.zarr"), workers=1)
    assert again.raw_attributes["content"] == finished.raw_attributes["content"]
    other = generate(small.with_overrides({"seed": 1}), str(tmp_path / "b.zarr"), workers=1)
    assert other.raw_attributes["content"] != finished.raw_attributes["content"]


# damage


def test_missing_and_cut_data_are_noticed(store):
    path_of(store, "u/c/0/0").unlink()
    cut = path_of(store, "a/c/2/0")
    cut.write_bytes(cut.read_bytes()[:-7])
    assert faults(store) == [
        "u, shard 0: the data are missing",
        "a, shard 2: the data differ from the recorded digest",
    ]
    assert missing(store) == [0, 2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace('"digest"', '"digist"'),
        lambda text: text.replace('"samples":[5,10]', '"samples":5'),
        lambda text: text.replace('"samples":[5,10]', '"samples":[5,11]'),
        lambda text: text.replace('"shard":1', '"shard":2'),
        lambda text: text.replace('{"a":"', '{"a":"0', 1),
    ],
)
def test_a_damaged_record_is_noticed(store, damage):
    path = path_of(store, Record.key(1))
    before = path.read_text()
    path.write_text(damage(before))
    assert path.read_text() != before
    assert missing(store) == [1]
    assert any("shard 1" in fault for fault in faults(store))


@pytest.mark.parametrize("key", ["mean", "mean_square"])
@pytest.mark.parametrize("shard", [0, 2])  # of the training split, and of the test split
def test_wrong_means_in_a_record_are_noticed(store, key, shard):
    path = path_of(store, Record.key(shard))
    record = Record.parse(path.read_bytes())
    getattr(record, key)["u"][0] *= 1 + 1e-15
    path.write_bytes(record.encode())  # with its own digest right
    resealed(store)
    assert f"u, shard {shard}: the recorded means differ" in faults(store)


def test_a_record_that_is_missing_or_of_another_shard_is_noticed(store):
    path_of(store, Record.key(1)).write_bytes(path_of(store, Record.key(0)).read_bytes())
    with pytest.raises(StoreError, match=r"000001\.json is the record of another shard"):
        store.record(1)
    path_of(store, Record.key(1)).unlink()
    with pytest.raises(StoreError, match="shard 1 has no record"):
        store.record(1)
    (fault,) = faults(store)
    assert "shard 1 has no record" in fault


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({"statistics": {}}, "statistics: differ from the recorded samples"),
        ({"content": "0" * 64}, "content: the digest differs from the records"),
        ({"skipped": [3]}, "skipped: differs from the records"),
    ],
)
def test_attributes_that_were_sealed_wrong_are_noticed(store, attributes, fault):
    resealed(with_attributes(store, **attributes))
    assert fault in faults(store)


# what is no store


def message_of(url):
    with pytest.raises(StoreError) as error:
        open_sealed(str(url))
    message = str(error.value)
    assert str(url) in message
    assert "\n" not in message
    return message


def a_file(path):
    path.write_text("mine", "utf-8")


def a_folder(path):
    path.mkdir()
    a_file(path / "notes.txt")


def a_group(path):
    zarr.create_group(str(path)).create_array("a", shape=(3,), dtype="float32")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such store"),
        (a_file, ": not a pdegen store"),
        (a_folder, ": not a pdegen store"),
        (a_group, ": a Zarr group, but not a pdegen store"),
    ],
)
def test_what_is_no_store_is_called_what_it_is_and_stays(tmp_path, make, message):
    make(tmp_path / "s")
    before = list(tmp_path.rglob("*"))
    assert message in message_of(tmp_path / "s")
    assert list(tmp_path.rglob("*")) == before


def test_an_interrupted_layout_is_called_that(small, tmp_path, monkeypatch):
    def full(self, key, data, write=Objects.write):
        if key == "u/zarr.json":
            raise OSError(28, "No space left on device")
        write(self, key, data)

    monkeypatch.setattr(Objects, "write", full)
    with pytest.raises(OSError, match="No space"):
        lay_out(str(tmp_path / "half.zarr"), layout(small))
    assert "its layout was interrupted" in message_of(tmp_path / "half.zarr")


@pytest.mark.parametrize("name", ["burgers-r10", "darcy-421", "darcy-85"])
def test_one_sample_is_read_without_the_rest_of_its_shard(name):
    """A chunk has half a megabyte at most, or one sample."""
    recipe = load_recipe(name)
    made = layout(recipe)
    arrays = json.loads(made.objects()["zarr.json"])["consolidated_metadata"]["metadata"]
    for variable in (arrays[v.name] for v in made.variables if v.shape):
        (sharding,) = variable["codecs"]
        chunk = sharding["configuration"]["chunk_shape"]
        assert chunk[1:] == variable["shape"][1:]
        assert recipe.shard % chunk[0] == 0
        assert chunk[0] == 1 or 4 * np.prod(chunk) <= 2**19
        assert chunk[0] == recipe.shard or 8 * np.prod(chunk) > 2**19 / 2  # and is no smaller


def test_where_an_object_is_missing_any_reader_finds_no_value(finished, tmp_path):
    root = shutil.copytree(finished.url, tmp_path / "store.zarr")
    for key in ("sample/c/0", "x/c/0", "u/c/0/0"):
        (root / key).unlink()
    with xr.open_zarr(root) as dataset:
        assert (dataset.sample.values == -1).all()  # whole numbers have no NaN
        assert np.isnan(dataset.x.values).all()
        assert np.isnan(dataset.u.values[:5]).all()
