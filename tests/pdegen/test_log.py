"""The files in `log/` say when, where and how each run wrote to a store."""

import json
import platform
from datetime import UTC, datetime

import pytest

from pdegen.generation import generate
from pdegen.generation.generate import logged, runs
from pdegen.store import objects as retries
from pdegen.store.objects import Objects
from pdegen.version import __version__

FACTS = {"processor": "a processor", "commit": "abc1234"}


@pytest.fixture
def objects(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "platform_facts", lambda: FACTS)
    monkeypatch.setattr(generate, "versions", lambda name: {name: "7.5"})
    return Objects(str(tmp_path))


def entries(objects):
    return [json.loads(objects.read(f"log/{name}")) for name in sorted(objects.keys("log"))]


def write(objects, number, **content):
    objects.write(f"log/{number}.json", json.dumps(content).encode())


def test_a_log_has_every_fact_of_its_run(objects, monkeypatch):
    before = datetime.now(UTC).replace(microsecond=0)
    monkeypatch.setattr(retries.time, "sleep", lambda seconds: None)
    faults = [OSError(5, "a moment")]

    @retries.retried
    def flaky():
        if faults:
            raise faults.pop()

    with logged(objects, "processes", 3, "cuda:1") as entry:
        entry["shards"] = 4
        entry["notes"].append("first")
        flaky()
    (written,) = entries(objects)
    started, finished = (
        datetime.fromisoformat(written.pop(name)) for name in ("started", "finished")
    )
    assert before <= started <= finished <= datetime.now(UTC)
    (name,) = objects.keys("log")
    named = datetime.strptime(name, "%Y%m%dT%H%M%S%fZ.json").replace(tzinfo=UTC)
    assert named.replace(microsecond=0) == started
    assert written == {
        "scheduler": "processes",
        "workers": 3,
        "machine": platform.machine(),
        "pdegen": __version__,
        "processor": "a processor",
        "commit": "abc1234",
        "device": "cuda:1",
        "dask": "7.5",
        "shards": 4,
        "notes": ["first", "attempt 1 failed: [Errno 5] a moment"],
        "end": "complete",
    }


def test_threads_on_the_cpu_name_no_device_and_no_dask(objects):
    with logged(objects, "threads", None, None):
        pass
    (written,) = entries(objects)
    assert not {"device", "dask"} & written.keys()
    assert (written["workers"], written["shards"], written["notes"]) == (None, 0, [])


def test_a_log_names_the_error_that_ended_its_run(objects):
    with pytest.raises(KeyboardInterrupt), logged(objects, "threads", 2, None):
        raise KeyboardInterrupt("now")
    assert entries(objects)[0]["end"] == "KeyboardInterrupt: now"
    assert "finished" in entries(objects)[0]


def test_runs_that_computed_are_listed_once_in_their_order(objects):
    write(objects, 3, shards=1, processor="two")
    write(objects, 1, shards=2, processor="one", commit="c1", device="cuda:0", dask="7.5")
    write(objects, 2, shards=0, processor="none")
    write(objects, 4, shards=5, dask="7.5", device="cuda:0", commit="c1", processor="one")
    write(objects, 5, shards=1, commit="c2", processor=7)
    write(objects, 6, shards=1)
    assert runs(objects) == ["one, commit c1, device cuda:0, dask 7.5", "two", "commit c2"]
