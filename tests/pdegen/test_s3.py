"""Stores on S3: a real protocol server on loopback, through the same commands."""

import os
import signal
import subprocess
import sys
import time
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
from tests.pdegen.conftest import SMALL
from tests.s3 import SECRET, stored
from tests.stores import faults, objects_of

PDEGEN = str(Path(sys.executable).parent / "pdegen")


def test_it_is_read_by_plain_xarray_and_for_training(small, finished, url):
    generate(small, url)
    dataset, expected = xr.open_zarr(url), xr.open_zarr(finished.url)
    assert dataset.identical(expected)
    pairs, same = read_pairs(url, "train"), read_pairs(finished.url, "train")
    np.testing.assert_array_equal(pairs.u.numpy(), same.u.numpy())


def test_noise_is_added_from_one_to_another(small, finished, url, tmp_path):
    generate(small, url)
    levels = at_levels({"kind": "relative", "seed": 0}, [0.1])
    noisy = add_noise(url, "u", levels, f"{url}.noisy")
    local = add_noise(finished.url, "u", levels, str(tmp_path / "noisy.zarr"))
    assert noisy.raw_attributes["content"] == local.raw_attributes["content"]


@pytest.mark.parametrize("name", ["seed[12]", "seed?", "seed*"])
def test_a_url_is_no_pattern_of_other_stores(small, url, name):
    other, store = f"{url}/seed1/b.zarr", f"{url}/{name}/b.zarr"
    for place in (other, store):
        generate(small, place)
    before = stored(other)
    generate(small.with_overrides({"seed": 5}), store, overwrite=True)
    assert stored(other) == before
    assert faults(store) == []
    Objects(store).remove_all()
    assert not Objects(store).keys("")
    assert stored(other) == before


# the command line, killed


def words(url: str) -> list[str]:
    return [PDEGEN, "generate", "burgers-quick", "--out", url,
            *(f"--set={key}={value}" for key, value in SMALL.items())]  # fmt: skip


def test_a_killed_command_is_resumed(finished, url):
    slow = [*words(url), "--set=shard=1", "--workers", "1"]
    process = subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not Objects(url).keys("records"):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert Objects(url).exists("lock.json")
    store = Store(url)
    if not store.sealed:
        done = subprocess.run([*slow, "--resume"], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == url
    assert faults(url) == []
    whole = xr.open_zarr(url).drop_attrs()
    assert whole.identical(xr.open_zarr(finished.url).drop_attrs())


def test_credentials_are_nowhere(url, line):
    done = [subprocess.run(words(url), capture_output=True, text=True, check=True)]
    done.append(subprocess.run(words(url), capture_output=True, text=True, check=False))
    wrong = f"s3://someone:{SECRET}@data/store.zarr"
    done.append(subprocess.run(words(wrong), capture_output=True, text=True, check=False))
    assert [process.returncode for process in done] == [0, 2, 2]
    assert "must not hold credentials" in done[2].stderr
    objects = Objects(url)
    logs = [objects.read(f"log/{key}") for key in objects.keys("log")]
    assert logs
    everything = b"".join([*stored(url).values(), *logs])
    said = "".join(process.stdout + process.stderr for process in done)
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
    done = subprocess.run(
        words("s3://nobody/store.zarr"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "s3://nobody/store.zarr" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in done.stderr
