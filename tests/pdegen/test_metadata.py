"""Metadata from a stranger are refused before anything is read by them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pdegen.store import Store, StoreError
from pdegen.verify import verify


def u(content):
    return content["consolidated_metadata"]["metadata"]["u"]


def codec(content):
    return u(content)["codecs"][0]["configuration"]


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


HOSTILE = {
    "samples": put(attributes, "samples", 10**30),
    "samples that differ": put(attributes, "samples", 13),
    "samples that are none": put(attributes, "samples", 0),
    "samples as text": put(attributes, "samples", "12"),
    "shard": put(attributes, "shard", 2**62),
    "shard of nothing": put(attributes, "shard", 0),
    "sealed": put(attributes, "sealed", "yes"),
    "variables": put(attributes, "variables", [["u"]]),
    "a variable that is not there": put(attributes, "variables", ["v"]),
    "split": put(attributes, "splits", {"train": [0, 10**9]}),
    "split backwards": put(attributes, "splits", {"train": [5, 2]}),
    "split's name": put(attributes, "splits", {"../train": [0, 2]}),
    "skipped": put(attributes, "skipped", [-1]),
    "recipe": put(attributes, "recipe", None),
    "up": renamed("../../etc"),
    "absolute": renamed("/etc/passwd"),
    "dots": renamed(".."),
    "shape": put(u, "shape", [12, 10**15]),
    "negative shape": put(u, "shape", [12, -32]),
    "many axes": put(u, "shape", [12] * 100),
    "dtype": put(u, "data_type", "object"),
    "structured dtype": put(u, "data_type", {"name": "struct", "configuration": {}}),
    "text": put(u, "data_type", "variable_length_utf8"),
    "complex": put(u, "data_type", "complex128"),
    "pickle": put(codec, "codecs", [{"name": "numcodecs.pickle"}]),
    "zstd": put(codec, "codecs", [{"name": "bytes"}, {"name": "zstd"}]),
    "no codecs": put(codec, "codecs", []),
    "index": put(codec, "index_codecs", [{"name": "bytes"}, {"name": "gzip"}]),
    "inner chunk": put(codec, "chunk_shape", [2**40, 32]),
    "chunk": put(
        u, "chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [5, 2**40]}}
    ),
    "grid": put(u, "chunk_grid", {"name": "rectilinear", "configuration": {}}),
    "keys": put(u, "chunk_key_encoding", {"name": "v2", "configuration": {"separator": "."}}),
    "transformer": put(u, "storage_transformers", [{"name": "fetch"}]),
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
        written(store, change).check()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    found = [str(fault) for fault in verify(store.url).faults]  # by the copy in the seal
    assert found == ["zarr.json: differs from the seal"]


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"[" * 100_000, b"null", b'{"node_type": "group"}', b"\xff{}"]
)
def test_what_is_no_metadata_is_refused(store, data):
    (Path(store.url) / "zarr.json").write_bytes(data)
    with pytest.raises(StoreError, match=r"metadata are damaged|not a pdegen store"):
        Store(store.url).check()


@pytest.mark.parametrize(
    "key", ["zarr.json", "seal.json", "records/000000.json", "u/c/0/0", "x/c/0", "u/zarr.json"]
)
def test_descriptions_without_end_take_little_memory(store, key):
    """A sparse file of 8 GiB."""
    with open(Path(store.url) / key, "r+b") as file:
        file.truncate(2**33)
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "sys.argv = ['pdegen', 'verify', sys.argv[1]]\n"
        "from pipelines.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, store.url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "larger than" in done.stderr or key == "zarr.json"
    assert key in done.stderr or "shard 0" in done.stderr
    assert "Traceback" not in done.stderr
