"""Stores on S3 while requests fail, answers are lost, and servers differ."""

import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from operators.data import read_pairs
from pdegen.generation.generate import RecipeJob, generate
from pdegen.generation.verify import repair
from pdegen.store.lock import LockedError, locked
from pdegen.store.objects import Objects, UrlError
from tests.daemons import moto
from tests.faults import KINDS, Faults
from tests.radosgw import radosgw
from tests.s3 import NAME, SECRET, served, stored
from tests.stores import faults as found
from tests.stores import interrupted, objects_of

SLOW = pytest.mark.slow
WAITING = pytest.param("late", marks=SLOW)  # clients wait for each such answer
PATIENCE = {"config_kwargs": {"read_timeout": 1, "connect_timeout": 1}}  # seconds


@contextmanager
def ceph() -> Iterator[int]:
    with (
        tempfile.TemporaryDirectory(prefix="ceph-") as folder,
        radosgw(Path(folder), NAME, SECRET) as port,
    ):
        yield port


@pytest.fixture(scope="module", params=["moto", pytest.param("ceph", marks=SLOW)])
def line(request) -> Iterator[Faults]:
    """What clients take for the server."""
    if request.param == "ceph":
        request.getfixturevalue("ceph_programs")
    with served({"moto": moto, "ceph": ceph}[request.param], retried=True, **PATIENCE) as proxy:
        yield proxy


@pytest.fixture
def proxy(line) -> Faults:
    """It, without faults yet."""
    line.begin()
    return line


@pytest.fixture
def url(request) -> str:
    return f"s3://data/{re.sub(r'[^a-z0-9]+', '-', request.node.name)}.zarr"


@pytest.mark.parametrize(
    "share", [0.05, pytest.param(0.15, marks=SLOW), pytest.param(0.3, marks=SLOW)]
)
def test_the_bytes_are_the_same_whatever_share_of_requests_fails(
    share, small, finished, proxy, url, capsys
):
    proxy.begin(share, seed=1)
    with interrupted(RecipeJob, sample=5):
        generate(small, url, workers=1)
    generate(small, url, workers=2, resume=True)
    assert found(url) == []
    Objects(url).write("u/c/0/0", b"damaged")
    assert repair(url).faults == []
    u = read_pairs(url, "train").u
    with capsys.disabled():
        print(f"\n{share:.0%} of requests fail: {proxy}")
    assert proxy.injected.total() > 0
    proxy.begin()
    assert stored(url) == objects_of(finished)
    np.testing.assert_array_equal(u.numpy(), read_pairs(finished.url, "train").u.numpy())


@pytest.mark.slow
def test_processes_make_the_same_bytes_while_requests_fail(small, finished, proxy, url, capsys):
    proxy.begin(0.3, seed=2)
    generate(small, url, scheduler="processes", workers=2)
    with capsys.disabled():
        print(f"\n30% of requests of two processes fail: {proxy}")
    proxy.begin()
    assert stored(url) == objects_of(finished)


@pytest.mark.parametrize("kind", [*KINDS[:-1], WAITING])
def test_a_fault_of_each_kind_is_survived_by_each_operation(kind, proxy, url):
    objects = Objects(url)
    proxy.plan("PUT", "/a", kind)
    objects.write("a", b"1234")
    proxy.plan("GET", "/a", kind)
    assert objects.read("a") == b"1234"
    proxy.plan("GET", "/a", kind)
    assert objects.read_all(["a"], 10) == [b"1234"]
    proxy.plan("GET", "/data", kind)
    assert objects.keys("") == ["a"]
    proxy.plan("HEAD", "/a", kind)
    assert objects.exists("a")
    proxy.plan("DELETE", "/a", kind)
    objects.remove("a")
    assert not objects.exists("a")
    assert proxy.injected[kind] == 6


@pytest.mark.parametrize("kind", ["lost", WAITING])
def test_probe_and_lock_survive_lost_answers(kind, proxy, small, finished, url):
    """The lock whose answer was lost is one's own."""
    proxy.plan("PUT", ".partial", kind, "503", kind)
    proxy.plan("PUT", "/lock.json", kind)
    generate(small, url)
    assert proxy.injected == {kind: 3, "503": 1}
    assert stored(url) == objects_of(finished)


def test_anothers_lock_is_anothers_when_answers_are_lost(proxy, small, url):
    with locked(Objects(url), "job"):
        proxy.plan("PUT", "/lock.json", "lost", "lost")
        with pytest.raises(LockedError, match="is being written by process"):
            generate(small, url)
        assert proxy.injected["lost"] == 2


def test_an_unmet_condition_that_is_not_named_is_one(proxy, url):
    """As Ceph answers; others add which condition it was."""
    proxy.plan("PUT", "/lock", "412")
    with pytest.raises(FileExistsError):
        Objects(url).create("lock", b"mine")


@pytest.mark.parametrize("line", ["moto"], indirect=True)  # Ceph checks signatures of headers
def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(proxy, small, url):
    proxy.begin(forgotten=("If-None-Match",))
    with pytest.raises(UrlError, match="ignores If-None-Match"):
        generate(small, url)
    assert stored(url) == {}


def test_of_many_who_create_an_object_at_once_one_succeeds(proxy, url):
    objects = Objects(url)

    def create(key: str) -> bool:
        try:
            objects.create(key, b"mine")
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        for number in range(10):
            assert sum(threads.map(create, [f"lock-{number}"] * 8)) == 1
