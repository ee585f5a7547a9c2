"""Metadata from a stranger are refused before anything is read by them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pdegen.generation.verify import verify
from pdegen.store.reading import Store, StoreError


def u(content):
    return content["consolidated_metadata"]["metadata"]["u"]


def codec(content):
    return u(content)["codecs"][0]["configuration"]


def blosc(content):
    return codec(content)["codecs"][1]["configuration"]


def x(content):
    return content["consolidated_metadata"]["metadata"]["x"]


def renamed(name):
    def change(content):
        arrays = content["consolidated_metadata"]["metadata"]
        arrays[name] = arrays.pop("u")
        content["attributes"]["variables"] = ["a", name, "error"]

    return change


def put(where, key, value):
    return lambda content: where(content).__setitem__(key, value)


def attributes(content):
    return content["attributes"]


def without(where, key):
    return lambda content: where(content).pop(key)


def arrays(content):
    return content["consolidated_metadata"]["metadata"]


def whole(content):
    return content


def cut(name, shape, chunk):
    def change(content):
        grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
        arrays(content)[name].update(shape=shape, chunk_grid=grid)

    return change


def many(content):
    """As many samples as shards, which the arrays agree with."""
    n = 2**40
    attributes(content).update(samples=n, shard=1)
    for name in ("a", "u", "error"):
        rest = arrays(content)[name]["shape"][1:]
        cut(name, [n, *rest], [1, *rest])(content)
        arrays(content)[name]["codecs"][0]["configuration"]["chunk_shape"] = [1, *rest]
    cut("sample", [n], [n])(content)


def large(content):
    """One shard of 4 GiB, in chunks of one sample each."""
    n = 2**20
    attributes(content).update(samples=n, shard=n)
    for name, rest in (("a", [1024]), ("u", [1024]), ("error", [])):
        cut(name, [n, *rest], [n, *rest])(content)
        arrays(content)[name]["codecs"][0]["configuration"]["chunk_shape"] = [1, *rest]
    cut("sample", [n], [n])(content)
    cut("x", [1024], [1024])(content)


def copies(content):
    arrays(content).update({f"x{k}": x(content) for k in range(300)})


def coordinates(content):
    """More of them than memory, each of them as large as one may be."""
    for k in range(12):
        array = json.loads(json.dumps(x(content)))
        arrays(content)[f"q{k}"] = {**array, "dimension_names": [f"q{k}"]}
        cut(f"q{k}", [2**24], [2**24])(content)


HOSTILE = {
    "samples": put(attributes, "samples", 10**30),
    "samples that differ": put(attributes, "samples", 13),
    "samples that are none": put(attributes, "samples", 0),
    "samples as text": put(attributes, "samples", "12"),
    "shard": put(attributes, "shard", 2**62),
    "sealed": put(attributes, "sealed", "yes"),
    "variables": put(attributes, "variables", [["u"]]),
    "a variable that is not there": put(attributes, "variables", ["a", "u", "error", "v"]),
    "split": put(attributes, "splits", {"train": [0, 10**9]}),
    "split's name": put(attributes, "splits", {"train": [0, 7], "../test": [7, 8]}),
    "skipped": put(attributes, "skipped", [-1]),
    "recipe": put(attributes, "recipe", None),
    "physics": put(attributes, "physics", {"boundary": {"u": "zero"}}),
    "up": renamed("../../etc"),
    "absolute": renamed("/etc/passwd"),
    "dots": renamed(".."),
    "shape": put(u, "shape", [12, 10**15]),
    "negative shape": put(u, "shape", [12, -32]),
    "many axes": put(u, "shape", [12] * 100),
    "dtype": put(u, "data_type", "object"),
    "complex": put(u, "data_type", "complex128"),
    "pickle": put(codec, "codecs", [{"name": "numcodecs.pickle"}]),
    "zstd": put(codec, "codecs", [{"name": "bytes"}, {"name": "zstd"}]),
    "no codecs": put(codec, "codecs", []),
    "index": put(codec, "index_codecs", [{"name": "bytes"}, {"name": "gzip"}]),
    "inner chunk": put(codec, "chunk_shape", [2**40, 32]),
    "chunk": put(
        u, "chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [5, 2**40]}}
    ),
    "chunk grid": put(u, "chunk_grid", {"name": "rectilinear", "configuration": {}}),
    "keys": put(u, "chunk_key_encoding", {"name": "v2", "configuration": {"separator": "."}}),
    "transformer": put(u, "storage_transformers", [{"name": "fetch"}]),
    "many shards": many,
    "large shards": large,
    "shard beyond the samples": put(attributes, "shard", 13),
    "many arrays": copies,
    "many coordinates": coordinates,
    "coordinate without end": cut("x", [2**40], [1]),
    "coordinate in pieces": cut("x", [32], [1]),
    "large coordinate": cut("x", [2**40], [2**40]),
    "coordinate of another length": cut("x", [31], [31]),
    "numbers of other samples": cut("sample", [13], [13]),
    "coordinate with a codec": put(x, "codecs", [{"name": "bytes"}, {"name": "zstd"}]),
    "coordinate of two axes": lambda content: (
        cut("x", [32, 1], [32, 1])(content),
        x(content).update(dimension_names=["x", "y"]),
    ),
    "no coordinate": without(arrays, "x"),
    "an axis of no variable": lambda content: arrays(content).update(
        y={**x(content), "dimension_names": ["y"]}
    ),
    "a number in place of an axis": lambda content: (
        cut("x", [], [])(content),
        x(content).update(dimension_names=[]),
    ),
    "grid": put(lambda content: x(content)["attributes"], "grid", 5),
    "no splits": without(attributes, "splits"),
    "splits as a list": put(attributes, "splits", [[0, 2]]),
    "splits without train": put(attributes, "splits", {"test": [0, 2]}),
    "split as text": put(attributes, "splits", {"train": "02"}),
    "split of floats": put(attributes, "splits", {"train": [0, 2.0]}),
    "skipped twice": put(attributes, "skipped", [3, 3]),
    "typesize": put(blosc, "typesize", -4),
    "typesize of another type": put(blosc, "typesize", 8),
    "compressor": put(blosc, "cname", ["lz4"]),
    "blocks": put(blosc, "blocksize", 2**40),
    "more of a codec": put(blosc, "callback", "f"),
    "index first": put(codec, "index_location", "start"),
    "chunks of part of a sample": put(codec, "chunk_shape", [1, 16]),
    "fill": put(u, "fill_value", {}),
    "fill with a value": put(u, "fill_value", 0.0),
    "fill of a coordinate": put(x, "fill_value", [0.0]),
    "no fill": without(u, "fill_value"),
    "dimensions nested": put(u, "dimension_names", ["sample", ["x"]]),
    "dimensions as numbers": put(u, "dimension_names", ["sample", 5]),
    "dimensions as text": put(u, "dimension_names", "sx"),
    "dimensions alike": put(u, "dimension_names", ["sample", "sample"]),
    "dimensions without samples": put(u, "dimension_names", ["x", "sample"]),
    "no dimensions": without(u, "dimension_names"),
    "attributes as a list": put(u, "attributes", []),
    "units": put(u, "attributes", {"units": ["m"]}),
    "a number beyond floats": put(u, "attributes", {"viscosity": 10**400}),
    "more of an array": put(u, "callback", "f"),
    "more of the group": put(whole, "callback", "f"),
    "group of Zarr 2": put(whole, "zarr_format", 2),
    "metadata of arrays": put(whole, "consolidated_metadata", None),
    "metadata elsewhere": put(lambda content: content["consolidated_metadata"], "kind", "url"),
    "statistics": put(attributes, "statistics", 5),
    "statistics of others": put(attributes, "statistics", {"v": {"mean": 0.0, "std": 1.0}}),
    "statistics as text": put(attributes, "statistics", {"u": {"mean": "0", "std": 1.0}}),
    "infinite statistics": put(attributes, "statistics", {"u": {"mean": 0, "std": float("inf")}}),
    "no statistics": without(attributes, "statistics"),
    "no content": without(attributes, "content"),
    "title": put(attributes, "title", 5),
    "title that is no text": put(attributes, "title", "\ud800"),
    "parent": put(attributes, "parent", {}),
    "parent's software": put(
        attributes, "parent", {"recipe": "r", "fingerprint": "", "content": "", "provenance": 5}
    ),
    "levels": put(
        attributes, "noise", {"variable": "u", "kind": "snr", "deviation": "", "levels": ["1"]}
    ),
    "imported": put(attributes, "imported", {"files": [5]}),
    "label error": put(attributes, "label_error", {"relative_l2": [], "reference": "r"}),
}


def written(store, change):
    path = Path(store.url) / "zarr.json"
    content = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content), "utf-8")
    return Store(store.url)


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_absurd_metadata_are_refused_in_one_line(store, change):
    with pytest.raises(StoreError, match="the metadata are damaged") as error:
        _ = written(store, change).description
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_absurd_metadata_are_found_by_their_copy_in_the_seal(store):
    with pytest.raises(StoreError, match="a name has letters"):
        _ = written(store, HOSTILE["up"]).description
    found = [str(fault) for fault in verify(store.url).faults]  # by the copy in the seal
    assert found == ["zarr.json: differs from the seal"]


@pytest.mark.parametrize("version", [2.0, True, "2", "3\n", None, [2], {}, 2, 5])
def test_other_versions_are_refused_in_one_line(store, version):
    with pytest.raises(
        StoreError, match=r"format version \w+, this version reads 3 and 4$"
    ) as error:
        _ = written(store, put(attributes, "format_version", version)).description
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"[" * 100_000, b"null", b'{"node_type": "group"}', b"\xff{}"]
)
def test_what_is_no_metadata_is_refused(store, data):
    (Path(store.url) / "zarr.json").write_bytes(data)
    with pytest.raises(StoreError, match=r"metadata are damaged|not a pdegen store"):
        _ = Store(store.url).description


DESCRIPTIONS = ["zarr.json", "seal.json", "records/000000.json", "u/c/0/0", "x/c/0", "u/zarr.json"]
VERIFIED = """
import resource, sys
from pdegen.generation.verify import verify
from pdegen.store.reading import StoreError
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
for url in sys.argv[1:]:
    try:
        print(*verify(url).faults)
    except StoreError as error:
        print(error)
"""


def test_descriptions_without_end_take_little_memory(finished, tmp_path):
    """Sparse files of 8 GiB."""
    stores = []
    for number, key in enumerate(DESCRIPTIONS):
        stores.append(shutil.copytree(finished.url, tmp_path / f"{number}"))
        os.truncate(stores[-1] / key, 2**33)
    done = subprocess.run([sys.executable, "-c", VERIFIED, *stores], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for key, line in zip(DESCRIPTIONS, done.stdout.splitlines(), strict=True):
        assert "larger than" in line or key == "zarr.json"
        assert key in line or "shard 0" in line
