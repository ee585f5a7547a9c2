"""What a store from a stranger may not say."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from operators.data import DataError, open_pairs, read_pairs


@pytest.fixture
def altered(plane_store, tmp_path):
    """A store after its metadata were changed."""

    def make(change):
        store = Path(shutil.copytree(plane_store, tmp_path / "store.zarr"))
        path = store / "zarr.json"
        content = json.loads(path.read_text("utf-8"))
        change(content["attributes"], content["consolidated_metadata"]["metadata"])
        path.write_text(json.dumps(content), "utf-8")
        return str(store)

    return make


def refusal(url):
    with pytest.raises(DataError) as refused:
        open_pairs(url, "train")
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(url)
    return message.removeprefix(f"{url}: ")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"samples": 10**12}, "samples: must be at most 16,777,216, got 1000000000000"),
        ({"samples": True}, "samples: must be a whole number, got True"),
        ({"samples": "24"}, "samples: must be a whole number, got '24'"),
        (
            {"samples": 23, "splits": {"train": [0, 12]}},
            "has shape (24, 13, 13): the store has samples = 23",
        ),
        ({"shard": 25}, "shard is 1 to samples = 24, got 25"),
        ({"shard": 4}, "has shards (5, 13, 13) of chunks (5, 13, 13): a shard has 4 whole"),
        ({"variables": "au"}, "variables: must be a list, got 'au'"),
        ({"splits": {"train": [0, 25]}}, "split train is a range of 0 to 24, got [0, 25]"),
        ({"splits": {"train": [0, 1.5]}}, "splits.train.1: must be a whole number, got 1.5"),
        ({"splits": [0, 12]}, "splits: must be a table, got [0, 12]"),
        ({"skipped": [3, 2]}, "skipped has samples 0 to 23 in order, got [3, 2]"),
        ({"skipped": [24]}, "skipped has samples 0 to 23 in order, got [24]"),
        ({"skipped": [[1]]}, "skipped.0: must be a whole number, got [1]"),
        ({"format_version": 5}, "format version 5, this version reads 2, 3 and 4"),
        ({"format_version": True}, "format version bool, this version reads 2, 3 and 4"),
        ({"splits": {"../train": [0, 2]}}, "letters, digits, _ and - make a name"),
        ({"recipe": "mine"}, "recipe: must be a table, got 'mine'"),
        ({"recipe": {"name": 5}}, "recipe.name: must be a string, got 5"),
        ({"fingerprint": 5}, "fingerprint: must be a string, got 5"),
        ({"content": None}, "content: must be a string, got None"),
    ],
)
def test_attributes_that_cannot_be_are_refused(altered, changed, message):
    assert message in refusal(altered(lambda attributes, arrays: attributes.update(changed)))


def variable(**changed):
    return lambda attributes, arrays: arrays["u"].update(changed)


def sharding(**changed):
    return lambda attributes, arrays: arrays["u"]["codecs"][0]["configuration"].update(changed)


def chunked(shape, shard, chunk):
    def change(attributes, arrays):
        arrays["u"]["shape"] = shape
        arrays["u"]["chunk_grid"]["configuration"]["chunk_shape"] = shard
        arrays["u"]["codecs"][0]["configuration"]["chunk_shape"] = chunk

    return change


def coordinate(points, chunk):
    def change(attributes, arrays):
        grid = {"name": "regular", "configuration": {"chunk_shape": [chunk]}}
        arrays["x"].update(shape=[points], chunk_grid=grid)

    return change


def blosc(**changed):
    options = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0, "typesize": 4}
    return {"name": "blosc", "configuration": {**options, **changed}}


LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (variable(data_type="complex64", fill_value=[0.0, 0.0]),
         "u.data_type: must be 'bool', 'float32', 'float64', 'int8'"),
        (variable(data_type="float16"), "u.data_type: must be 'bool', 'float32'"),
        (variable(codecs=[LITTLE]), "u has codecs bytes little: allowed is sharding_indexed"),
        (sharding(codecs=[LITTLE, GZIP]), "sharding_indexed of bytes little, gzip: allowed"),
        (sharding(codecs=[LITTLE]), "u has codecs sharding_indexed of bytes little: allowed"),
        (sharding(index_codecs=[LITTLE]), "sharding_indexed of bytes little, blosc, crc32c"),
        (sharding(index_location="start"), "its index bytes little, crc32c at the end"),
        (chunked([10**9, 13, 13], [5, 13, 13], [5, 13, 13]), "the store has samples = 24"),
        (chunked([24, 2**14, 2**14], [5, 2**14, 2**14], [5, 2**14, 2**14]),
         "u has chunks of 5,368,709,120 bytes: allowed are 1,073,741,824"),
        (chunked([24, 2**14, 2**14], [24, 2**14, 2**14], [1, 2**14, 2**14]),
         "u has shards of 25,769,803,776 bytes: allowed are 2,147,483,648"),
        (chunked([24, 13, 13], [5, 13, 13], [1, 13, 1]), "of chunks (1, 13, 1): a shard has 5"),
        (chunked([24, 26, 26], [5, 26, 26], [1, 26, 26]),
         "u has 26 points along x, the coordinate has shape (13,)"),
        (lambda _, arrays: arrays.update({"../u": arrays["u"]}), "letters, digits, _ and -"),
        (lambda _, arrays: arrays.update({"u u": arrays["u"]}), "letters, digits, _ and -"),
        (lambda _, arrays: arrays["x"].update(codecs=[LITTLE, GZIP]),
         "x has codecs bytes little, gzip: allowed are bytes little, crc32c"),
        (coordinate(2**30, 2**30), "x has 8,589,934,592 bytes: allowed are 134,217,728"),
        (coordinate(2**24, 1), "x has shape (16777216,) in chunks (1,): allowed is a whole one"),
        (coordinate(12, 12), "a has 13 points along x, the coordinate has shape (12,)"),
        (variable(dimension_names=["sample", ["x"], "y"]), "the metadata are damaged"),
        (variable(dimension_names=5), "the metadata are damaged"),
        (variable(fill_value={}), "the metadata are damaged"),
        (variable(attributes=[1]), "u.attributes: must be a table, got [1]"),
        (sharding(codecs=[LITTLE, blosc(typesize=-4)]), "the metadata are damaged"),
    ],
)  # fmt: skip
def test_arrays_that_the_format_does_not_have_are_refused(altered, change, message):
    assert message in refusal(altered(change))


def test_metadata_without_end_are_refused(altered):
    """A sparse file of 8 GiB."""
    url = altered(lambda attributes, arrays: None)
    with open(Path(url) / "zarr.json", "r+b") as file:
        file.truncate(2**33)
    assert "zarr.json has more than 67,108,864 bytes" in refusal(url)


@pytest.fixture
def shard(plane_store, tmp_path):
    """The first shard of u, and the store it is in."""
    store = Path(shutil.copytree(plane_store, tmp_path / "store.zarr"))
    return store / "u" / "c" / "0" / "0" / "0", str(store)


def assert_damaged(url):
    with pytest.raises(DataError, match=r"u, samples 0 to 4: the data are damaged \(.*verify"):
        read_pairs(url, "train")


@pytest.mark.parametrize("place", [-1, -4, -5, -20])
def test_a_changed_index_is_found(shard, place):
    path, url = shard
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert_damaged(url)


@pytest.mark.parametrize("size", [0, 1, 19, 20, 100])
def test_a_cut_shard_is_found(shard, size):
    path, url = shard
    path.write_bytes(path.read_bytes()[:size])
    assert_damaged(url)


@pytest.mark.parametrize("place", [4, 7, 12, 15])  # of the sizes in the header of a chunk
def test_a_chunk_that_claims_another_size_is_not_decoded(shard, place):
    path, url = shard
    data = bytearray(path.read_bytes())
    data[place] ^= 0x11
    path.write_bytes(data)
    assert_damaged(url)


def test_an_index_that_points_elsewhere_is_refused(shard):
    from google_crc32c import value

    path, url = shard
    data = path.read_bytes()
    for offset, length in ((2**63, 100), (0, 2**40), (10**9, 100)):
        index = np.array([offset, length], "<u8").tobytes()
        path.write_bytes(data[:-20] + index + value(index).to_bytes(4, "little"))
        assert_damaged(url)
