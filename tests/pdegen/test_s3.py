"""Stores on S3: a real protocol server on loopback, through the same commands."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from s3fs import S3FileSystem

from operators.data import read_pairs
from pdegen.generation.derived import add_noise, at_levels
from pdegen.generation.generate import generate
from pdegen.store.objects import Objects
from pdegen.store.reading import Store
from tests.forked import command, forked
from tests.pdegen.conftest import SMALL
from tests.s3 import SECRET, stored
from tests.stores import faults, objects_of

PDEGEN = str(Path(sys.executable).parent / "pdegen")
ONE = {"train": 1, "validation": 1, "test": 1}


def test_it_is_read_by_xarray_for_training_and_to_add_noise(small, finished, url, tmp_path):
    generate(small, url)
    dataset, expected = xr.open_zarr(url), xr.open_zarr(finished.url)
    assert dataset.identical(expected)
    pairs, same = read_pairs(url, "train"), read_pairs(finished.url, "train")
    np.testing.assert_array_equal(pairs.u.numpy(), same.u.numpy())
    levels = at_levels({"kind": "relative", "seed": 0}, [0.1])
    noisy = add_noise(url, "u", levels, f"{url}.noisy")
    local = add_noise(finished.url, "u", levels, str(tmp_path / "noisy.zarr"))
    assert noisy.raw_attributes["content"] == local.raw_attributes["content"]


def test_a_url_is_no_pattern_of_other_stores(small, url):
    one = small.with_overrides({"samples": 3, "shard": 3, "splits": ONE})
    other, *stores = (f"{url}/{name}/b.zarr" for name in ("seed1", "seed[12]", "seed?", "seed*"))
    generate(one, other)
    before = stored(other)
    for store in stores:
        Objects(store).write("u/c/0", b"")
        assert Objects(store).keys("") == ["u"]
        Objects(store).remove_all()
        assert not Objects(store).keys("")
        assert stored(other) == before
    generate(one, stores[0])
    generate(one.with_overrides({"seed": 5}), stores[0], overwrite=True)
    assert faults(stores[0]) == []
    assert stored(other) == before


# the command line, killed


def words(url: str) -> list[str]:
    return ["generate", "burgers-quick", "--out", url,
            *(f"--set={key}={value}" for key, value in SMALL.items())]  # fmt: skip


def test_a_killed_command_is_resumed(small, finished, url):
    def killed():
        generate(small, url, workers=1, progress=lambda p: p.done and os.kill(0, signal.SIGKILL))

    assert forked(killed).killed
    assert Objects(url).exists("lock.json")
    assert 0 < len(Objects(url).keys("records")) < 3
    assert not Store(url).sealed
    assert forked(command(*words(url), "--resume")).status == 0
    assert faults(url) == []
    assert stored(url) == objects_of(finished)


def test_credentials_are_nowhere(url, line):
    """A process of its own has the address of the server from the environment alone."""
    made = subprocess.run([PDEGEN, *words(url)], capture_output=True, text=True, check=True)
    again = forked(command(*words(url)))
    wrong = forked(command(*words(f"s3://someone:{SECRET}@data/store.zarr")))
    assert (again.status, wrong.status) == (2, 2)
    assert "must not hold credentials" in wrong.said
    objects = Objects(url)
    logs = [objects.read(f"log/{key}") for key in objects.keys("log")]
    assert logs
    everything = b"".join([*stored(url).values(), *logs])
    said = made.stdout + made.stderr + again.said + wrong.said
    for word in (SECRET, "someone"):
        assert word.encode() not in everything
        assert word not in said


def test_a_lost_network_ends_in_one_line_and_resumes(small, finished, url, line, monkeypatch):
    monkeypatch.setattr(S3FileSystem, "retries", 1)  # it waits long between its attempts too

    def cut(progress):
        if progress.done == 1:
            line.begin(1.0, kinds=("reset",))

    try:
        with pytest.raises(OSError, match=r"Error") as error:
            generate(small.with_overrides({}), url, workers=1, progress=cut)
        assert "\n" not in str(error.value)
        assert SECRET not in str(error.value)
    finally:
        line.begin()
    # the line was cut before the lock could be given back: it is of this living process
    generate(small, url, resume=True, take_over=True)
    assert stored(url) == objects_of(finished)


def test_a_bucket_that_does_not_exist_is_a_wrong_request(line):
    done = forked(command(*words("s3://nobody/store.zarr")))
    assert done.status == 2
    assert "s3://nobody/store.zarr" in done.said
    assert len(done.said.strip().splitlines()) == 1
    assert SECRET not in done.said
