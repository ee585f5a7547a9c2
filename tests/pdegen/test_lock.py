import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from pdegen.generate import generate
from pdegen.lock import KEY, Holder, LockedError, check, locked
from pdegen.objects import Objects
from tests.stores import objects_of


@pytest.fixture(params=["disk", "memory"])
def objects(request, tmp_path):
    return Objects(str(tmp_path) if request.param == "disk" else f"memory://{tmp_path}")


def hold(objects, holder):
    objects.write(KEY, json.dumps(asdict(holder)).encode())


def ended():
    """A process of this machine that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(Holder.here(), pid=child.pid)


def elsewhere():
    return replace(Holder.here(), host="node17", pid=4711)


def test_the_second_is_refused_with_the_identity_of_the_first(objects):
    with locked(objects) as first:
        with pytest.raises(LockedError) as error, locked(objects):
            pass
        assert f"process {first.pid} on {first.host}, since {first.since}" in str(error.value)
        assert "--take-over" in str(error.value)
        check(objects, first)
    assert objects.keys("") == []


def test_it_is_given_back_after_an_error(objects):
    with pytest.raises(KeyError), locked(objects):
        raise KeyError
    with locked(objects):
        pass


@pytest.mark.parametrize(
    "holder",
    [
        ended,
        lambda: replace(Holder.here(), born=1.0),  # the number was given to another process
        lambda: replace(Holder.here(), boot="an earlier one"),
    ],
    ids=["ended", "another", "rebooted"],
)
def test_one_that_is_certainly_gone_is_no_hindrance(objects, holder):
    hold(objects, holder())
    with locked(objects) as mine:
        check(objects, mine)


def test_one_of_another_machine_is_taken_over_by_choice_alone(objects):
    hold(objects, elsewhere())
    with pytest.raises(LockedError, match="process 4711 on node17"), locked(objects):
        pass
    with locked(objects, take_over=True) as mine:
        check(objects, mine)


def test_who_was_taken_over_notices_and_leaves_the_lock_alone(objects):
    with locked(objects) as first:
        hold(objects, elsewhere())
        with pytest.raises(LockedError, match="was taken over by process 4711 on node17"):
            check(objects, first)
    assert objects.exists(KEY)


UNREADABLE = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "few": b'{"token": "1"}',
    "no text": b"\xff",
    "deep": b"[" * 100_000,
    "large": b" " * 2**16 + b"{}",
    "more": {"more": 1},
    "words": {"token": 5},
    "no word": {"host": None},
    "two lines": {"host": "node\nroot"},
    "a list of words": {"boot": ["1"]},
    "an object": {"since": {}},
    "negative": {"pid": -5},
    "the system's": {"pid": 0},
    "beyond": {"pid": 2**80},
    "true": {"pid": True},
    "text": {"pid": "1"},
    "float": {"pid": 1.0},
    "born as text": {"born": "then"},
    "born never": {"born": float("nan")},
    "born late": {"born": 10**400},
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_one_that_cannot_be_read_is_taken_over_by_choice_alone(objects, content):
    if isinstance(content, dict):
        content = json.dumps({**asdict(Holder.here()), **content}).encode()
    objects.write(KEY, content)
    with pytest.raises(LockedError, match=r"lock\.json cannot be read"), locked(objects):
        pass
    with locked(objects, take_over=True):
        pass


def test_two_jobs_do_not_write_to_one_store(small, finished, tmp_path):
    url = str(tmp_path / "s.zarr")
    with locked(Objects(url)), pytest.raises(LockedError, match="is being written by process"):
        generate(small, url)
    assert objects_of(generate(small, url)) == objects_of(finished)


def test_who_was_taken_over_does_not_seal(small, finished, tmp_path):
    url = str(tmp_path / "s.zarr")

    def taken(progress):
        hold(Objects(url), elsewhere())

    with pytest.raises(LockedError, match="was taken over by process 4711"):
        generate(small, url, progress=taken)
    with pytest.raises(LockedError, match="is being written by process 4711"):
        generate(small, url, resume=True)
    assert objects_of(generate(small, url, resume=True, take_over=True)) == objects_of(finished)
