import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from pdegen.making.contents import compute, layout
from pdegen.making.generate import generate
from pdegen.recipe import load_recipe
from pdegen.store.checking import missing
from pdegen.store.objects import Objects
from pdegen.store.reading import Store, StoreError, open_sealed
from pdegen.store.record import Record, Seal
from pdegen.store.writing import lay_out, seal, write_shard
from tests.pdegen.conftest import SMALL
from tests.stores import faults, resealed, with_attributes


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


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


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


def test_every_variable_has_units_and_a_name_in_words(finished):
    dataset = xr.open_zarr(finished.url)
    for name in ("a", "u", "error", "x", "time"):
        assert dataset[name].attrs["units"] == "1", name
    for name in ("a", "u", "error", "x", "time", "sample"):
        assert dataset[name].attrs["long_name"], name
    assert dataset["u"].attrs["viscosity"] == dataset.attrs["recipe"]["problem"]["viscosity"]
    assert (dataset["a"].attrs["role"], dataset["u"].attrs["role"]) == ("input", "target")


def test_it_holds_what_was_computed(finished, small):
    expected = compute(small, range(12))
    for name in ("a", "u", "error"):
        np.testing.assert_array_equal(finished.values(name), expected[name])


def test_statistics_are_those_of_the_training_split(finished):
    for name, statistics in finished.attributes["statistics"].items():
        values = np.asarray(finished.values(name)[:7], np.float64)
        assert statistics["mean"] == pytest.approx(values.mean(), rel=1e-12, abs=1e-15)
        assert statistics["std"] == pytest.approx(values.std(), rel=1e-12)


def test_a_shard_is_one_object(finished):
    for name, chunks in (("a", ["0"]), ("u", ["0"]), ("error", [])):
        for shard in range(3):
            assert path_of(finished, "/".join([name, "c", str(shard), *chunks])).is_file()
    assert finished.array("a").shard == (5, 32)
    assert finished.objects.keys("records") == ["000000.json", "000001.json", "000002.json"]


def test_nothing_unfinished_is_left_behind(finished):
    assert not list(Path(finished.url).rglob("*.partial*"))


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


def test_a_value_too_large_for_the_disk_type_is_refused(empty, small):
    values = compute(small, range(5))
    values["u"] = values["u"].astype(np.float64) * 1e39
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match="u: sample 0 is not finite"),
    ):
        write_shard(empty, 0, values)


@pytest.mark.parametrize(
    ("name", "shape"), [("a", (5, 16)), ("u", (4, 32)), ("u", (5, 1, 32)), ("error", (5, 1))]
)
def test_another_shape_is_refused(empty, small, name, shape):
    values = {**compute(small, range(5)), name: np.zeros(shape)}
    with pytest.raises(ValueError, match=rf"{name}: expected shape \(5.*\), got \({shape[0]}"):
        write_shard(empty, 0, values)
    assert empty.objects.keys("a/c") == []


def test_missing_values_are_refused(empty, small):
    values = compute(small, range(5))
    del values["u"]
    with pytest.raises(ValueError, match="u: no values are given"):
        write_shard(empty, 0, values)


# reading


def test_values_are_those_of_the_samples_asked_for(finished, small):
    expected = compute(small, range(3, 8))
    for name in ("a", "u", "error"):
        np.testing.assert_array_equal(finished.values(name, range(3, 8)), expected[name])


def test_damaged_or_missing_values_are_refused(store):
    cut = path_of(store, "u/c/0/0")
    cut.write_bytes(cut.read_bytes()[:-9])
    path_of(store, "a/c/1/0").unlink()
    for name, samples in (("u", range(2)), ("a", range(4, 6))):
        with pytest.raises(StoreError, match=f"{name}, samples .* are damaged .*pdegen verify"):
            store.values(name, samples)
    assert store.values("u", range(5, 12)).shape == (7, 32)


def test_values_that_are_damaged_after_they_were_read_are_refused(store):
    values = store.values("u", range(5))
    path = path_of(store, "u/c/0/0")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for opened in (store, Store(store.url)):
        with pytest.raises(StoreError, match="differ from the recorded digest"):
            opened.values("u", range(5))
    data[-1] ^= 1
    path.write_bytes(data)
    assert np.array_equal(store.values("u", range(5)), values)


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


def test_an_unsealed_store_is_refused_with_the_way_to_finish_it(empty, small):
    write_shard(empty, 0, compute(small, range(5)))
    with pytest.raises(StoreError) as error:
        open_sealed(empty.url)
    message = str(error.value)
    assert "is not sealed (1 of 3 shards are written)" in message
    assert f"pdegen generate burgers-quick ... --out {empty.url}, with --resume" in message


def test_the_content_digest_is_of_the_data_alone(finished, small, tmp_path):
    again = generate(small, str(tmp_path / "again.zarr"), workers=1)
    assert again.attributes["content"] == finished.attributes["content"]
    other = generate(small.with_overrides({"seed": 1}), str(tmp_path / "b.zarr"), workers=1)
    assert other.attributes["content"] != finished.attributes["content"]


# damage


def test_a_sound_store_has_no_faults(finished):
    assert faults(finished) == []
    assert missing(finished) == []


@pytest.mark.parametrize("place", [0, 100, -1])
@pytest.mark.parametrize("name", ["a", "u", "error"])
def test_one_bit_of_the_data_is_noticed(store, name, place):
    key = f"{name}/c/1" + ("" if name == "error" else "/0")
    size = path_of(store, key).stat().st_size
    flip(path_of(store, key), place % size)
    (fault,) = faults(store)
    assert str(fault) == f"{name}, shard 1: the data differ from the recorded digest"
    assert missing(store) == [1]


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


def test_a_missing_record_is_noticed(store):
    path_of(store, Record.key(2)).unlink()
    (fault,) = faults(store)
    assert "shard 2 has no record" in str(fault)
    with pytest.raises(StoreError, match="shard 2 has no record"):
        store.record(2)


def test_the_record_of_another_shard_is_noticed(store):
    path_of(store, Record.key(1)).write_bytes(path_of(store, Record.key(0)).read_bytes())
    with pytest.raises(StoreError, match=r"000001\.json is the record of another shard"):
        store.record(1)


@pytest.mark.parametrize("attributes", [{"statistics": {}}, {"content": "0" * 64}])
def test_changed_attributes_are_noticed(store, attributes):
    assert faults(with_attributes(store, **attributes)) == ["zarr.json: differs from the seal"]


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


def test_a_store_without_its_seal_is_noticed(store):
    path_of(store, Seal.KEY).unlink()
    assert faults(store) == ["seal.json: is missing"]


# what is no store


def message_of(url):
    with pytest.raises(StoreError) as error:
        open_sealed(str(url))
    message = str(error.value)
    assert str(url) in message
    assert "\n" not in message
    return message


def test_an_absent_store_is_called_that(tmp_path):
    assert "no such store" in message_of(tmp_path / "absent.zarr")
    assert not (tmp_path / "absent.zarr").exists()


def test_a_plain_folder_is_no_store(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert ": not a pdegen store" in message_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_no_store(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    assert ": not a pdegen store" in message_of(path)


def test_another_zarr_group_is_no_store(tmp_path):
    url = tmp_path / "other.zarr"
    zarr.create_group(str(url)).create_array("a", shape=(3,), dtype="float32")
    assert ": a Zarr group, but not a pdegen store" in message_of(url)
    assert (url / "a").is_dir()


def test_an_interrupted_layout_is_called_that(small, tmp_path, monkeypatch):
    def full(self, key, data, write=Objects.write):
        if key == "u/zarr.json":
            raise OSError(28, "No space left on device")
        write(self, key, data)

    monkeypatch.setattr(Objects, "write", full)
    with pytest.raises(OSError, match="No space"):
        lay_out(str(tmp_path / "half.zarr"), layout(small))
    assert "was interrupted while it was laid out" in message_of(tmp_path / "half.zarr")


def test_damaged_metadata_are_called_that(store):
    path = path_of(store, "zarr.json")
    path.write_text(path.read_text()[:200])
    assert "the metadata are damaged" in message_of(store.url)


def test_a_later_format_is_refused(store):
    with_attributes(store, format_version=99)
    assert "format version 99, this version reads 3 and 4" in message_of(store.url)


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
