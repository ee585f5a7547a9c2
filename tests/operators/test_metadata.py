"""Stores from a stranger: damaged values are found, and refusals of metadata come as `DataError`.

What metadata may not say at all, tests/pdegen/test_metadata.py has.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value

from operators.data import DataError, open_pairs, read_pairs


def attributes(**changed):
    return lambda attributes, arrays: attributes.update(changed)


def variable(**changed):
    return lambda attributes, arrays: arrays["u"].update(changed)


def chunked(shape, shard, chunk):
    def change(attributes, arrays):
        arrays["u"]["shape"] = shape
        arrays["u"]["chunk_grid"]["configuration"]["chunk_shape"] = shard
        arrays["u"]["codecs"][0]["configuration"]["chunk_shape"] = chunk

    return change


def coordinate(points):
    def change(attributes, arrays):
        grid = {"name": "regular", "configuration": {"chunk_shape": [points]}}
        arrays["x"].update(shape=[points], chunk_grid=grid)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (attributes(samples=10**12), "samples: must be at most 16,777,216, got 1000000000000"),
        (attributes(samples=True), "samples: must be a whole number, got True"),
        (attributes(samples=23, splits={"train": [0, 12]}),
         "has shape (24, 13, 13): the store has samples = 23"),
        (attributes(splits={"train": [0, 25]}), "split train is a range of 0 to 24, got [0, 25]"),
        (attributes(format_version=5), "format version 5, this version reads 3 and 4"),
        (attributes(recipe={"name": 5}), "recipe.name: must be a string, got 5"),
        (variable(data_type="float16"), "u.data_type: must be 'bool', 'float32'"),
        (chunked([24, 2**14, 2**14], [5, 2**14, 2**14], [5, 2**14, 2**14]),
         "u has chunks of 5,368,709,120 bytes: allowed are 1,073,741,824"),
        (chunked([24, 2**14, 2**14], [24, 2**14, 2**14], [1, 2**14, 2**14]),
         "u has shards of 25,769,803,776 bytes: allowed are 2,147,483,648"),
        (chunked([24, 26, 26], [5, 26, 26], [1, 26, 26]),
         "u has 26 points along x, the coordinate has shape (13,)"),
        (coordinate(2**30), "x has 8,589,934,592 bytes: allowed are 134,217,728"),
    ],
)  # fmt: skip
def test_metadata_that_cannot_be_are_refused_in_one_line(plane_store, tmp_path, change, message):
    store = Path(shutil.copytree(plane_store, tmp_path / "store.zarr"))
    content = json.loads((store / "zarr.json").read_text("utf-8"))
    change(content["attributes"], content["consolidated_metadata"]["metadata"])
    (store / "zarr.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(DataError) as refused:
        open_pairs(str(store), "train")
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(str(store))
    assert message in str(refused.value)


def test_metadata_without_end_are_refused(plane_store, tmp_path):
    """A sparse file of 8 GiB."""
    store = Path(shutil.copytree(plane_store, tmp_path / "store.zarr"))
    with open(store / "zarr.json", "r+b") as file:
        file.truncate(2**33)
    with pytest.raises(DataError, match=r"larger than 67,108,864 bytes: .*zarr\.json"):
        open_pairs(str(store), "train")


def flipped(place, bits=1):
    def change(data):
        return data[:place] + bytes([data[place] ^ bits]) + data[place:][1:]

    return change


def pointing(offset, length):
    """Change of a shard: an index with this offset and length, and a valid checksum."""

    def change(data):
        index = np.array([offset, length], "<u8").tobytes()
        return data[:-20] + index + value(index).to_bytes(4, "little")

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(flipped(place) for place in (-1, -4, -5, -20)),  # of the index
        *(flipped(place, 0x11) for place in (4, 7, 12, 15)),  # of sizes in the header of a chunk
        *(lambda data, size=size: data[:size] for size in (0, 1, 19, 20, 100)),
        *(pointing(*to) for to in ((2**63, 100), (0, 2**40), (10**9, 100))),
    ],
)
def test_a_damaged_shard_is_found(plane_store, tmp_path, change):
    store = Path(shutil.copytree(plane_store, tmp_path / "store.zarr"))
    path = store / "u" / "c" / "0" / "0" / "0"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=r"u, samples 0 to 4: the data are damaged \(.*verify"):
        read_pairs(str(store), "train")
