import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from pdegen.generation.generate import RecipeJob, generate
from pdegen.store import lock
from pdegen.store.lock import LEASE_KEY, LOCK_KEY, Holder, LockedError, check, locked
from pdegen.store.objects import Objects
from tests.stores import objects_of

JOB = "a fingerprint"


@pytest.fixture(params=["disk", "memory"])
def objects(request, tmp_path):
    return Objects(str(tmp_path) if request.param == "disk" else f"memory://{tmp_path}")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Leases of a second."""
    monkeypatch.setattr(lock, "LEASE", 1.0)
    monkeypatch.setattr(lock, "RENEWAL", 0.1)


def hold(objects, holder):
    objects.write(LOCK_KEY, json.dumps(asdict(holder)).encode())


def elsewhere():
    """A job on a machine of the same name."""
    return replace(Holder.here(JOB), kernel="another", pid=os.getpid())


@contextmanager
def renewing(objects):
    """Somebody elsewhere renews the lease."""
    done = threading.Event()

    def renew():
        number = 0
        while not done.wait(0.1):
            objects.write(LEASE_KEY, str(number).encode())
            number += 1

    thread = threading.Thread(target=renew)
    thread.start()
    yield
    done.set()
    thread.join()


@contextmanager
def living(folder, before=()):
    """A process that holds the lock of a store; `before` it, a command such as unshare."""
    code = (
        "import sys, time; from pdegen.store.lock import locked\n"
        "from pdegen.store.objects import Objects\n"
        "with locked(Objects(sys.argv[1]), 'job'): print('held', flush=True); time.sleep(600)"
    )
    command = [*before, sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_the_second_is_refused_with_the_identity_of_the_first(objects):
    with pytest.raises(KeyError), locked(objects, JOB):  # which gives it back
        raise KeyError
    with locked(objects, JOB) as first:
        with pytest.raises(LockedError) as error, locked(objects, JOB):
            pass
        assert f"process {first.pid} on {first.host}, since {first.since}" in str(error.value)
        assert "--take-over" in str(error.value)
        check(objects, first)
    assert objects.keys("") == []


@pytest.mark.parametrize("others", [False, True])
def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path, monkeypatch, others):
    """Also where its sign of life cannot be removed, as another user's in a sticky folder."""
    monkeypatch.setattr(lock, "LEASE", 600.0)
    with living(tmp_path) as process:
        process.kill()
        process.wait()
    token, unlink = json.loads((tmp_path / lock.LOCK_KEY).read_text())["token"], Path.unlink
    sign = Path(tempfile.gettempdir()) / f"pdegen-{token}.lock"

    def refused(path, *arguments, **options):
        if path == sign:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        unlink(path, *arguments, **options)

    with monkeypatch.context() as patch:
        if others:
            patch.setattr(Path, "unlink", refused)
        with locked(Objects(str(tmp_path)), JOB) as mine:
            check(Objects(str(tmp_path)), mine)
    assert sign.exists() == others
    sign.unlink(missing_ok=True)


@pytest.mark.parametrize("before", [[], ["unshare", "--pid", "--fork", "--mount-proc"]])
def test_a_living_process_keeps_its_lock(tmp_path, monkeypatch, before):
    """Whatever the clock says, and in another namespace of processes."""
    with living(tmp_path, before):
        monkeypatch.setattr(time, "time", lambda: 4e9)
        with (
            pytest.raises(LockedError, match="is being written by process"),
            locked(Objects(str(tmp_path)), JOB),
        ):
            pass


def test_a_machine_of_the_same_name_keeps_a_lock_that_it_renews(objects):
    hold(objects, elsewhere())
    with (
        renewing(objects),
        pytest.raises(LockedError, match="is being written by process"),
        locked(objects, JOB),
    ):
        pass


def test_a_lock_elsewhere_is_taken_over_after_a_lease_without_a_sign(objects, caplog):
    hold(objects, elsewhere())
    start = time.monotonic()
    with locked(objects, JOB) as mine:
        check(objects, mine)
    assert time.monotonic() - start > lock.LEASE
    assert "waiting up to 1 seconds" in caplog.text


def test_a_lock_elsewhere_is_taken_over_at_once_by_choice(objects, monkeypatch):
    monkeypatch.setattr(lock, "LEASE", 600.0)
    hold(objects, elsewhere())
    with renewing(objects), locked(objects, JOB, take_over=True) as mine:
        check(objects, mine)


class Clock:
    """Time that passes only in `sleep`. The given call is made at the given second."""

    def __init__(self, due=float("inf"), call=None):
        self.now, self.due, self.call, self.slept = 100.0, 100 + due, call, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        if self.now >= self.due:
            self.due = float("inf")
            self.call()


@pytest.fixture
def held(tmp_path, monkeypatch):
    """Objects whose lock somebody elsewhere holds for 60 seconds, and this holder."""
    monkeypatch.setattr(lock, "LEASE", 60.0)
    objects, other = Objects(f"memory://{tmp_path}"), elsewhere()
    hold(objects, other)
    objects.write(LEASE_KEY, b"7")
    return objects, other


@pytest.mark.parametrize("key", [LEASE_KEY, LOCK_KEY])
@pytest.mark.parametrize("second", [0.5, 59.5])
def test_a_change_within_a_lease_shows_that_the_holder_runs(held, monkeypatch, key, second):
    objects, other = held
    changed = json.dumps(asdict(replace(other, pid=3))).encode() if key == LOCK_KEY else b"8"
    monkeypatch.setattr(lock, "time", Clock(second, lambda: objects.write(key, changed)))
    text = (
        f"{objects.url} is being written by {other}: wait for it, or take over with --take-over if "
        "it has ended"
    )
    with pytest.raises(LockedError, match=f"^{re.escape(text)}$") as error:
        lock._expired(objects, other)
    assert not error.value.same


@pytest.mark.parametrize("second", [0.5, 59.5])
def test_a_lock_is_free_as_soon_as_it_is_given_back(held, monkeypatch, second):
    objects, other = held
    clock = Clock(second, lambda: objects.remove(LOCK_KEY))
    monkeypatch.setattr(lock, "time", clock)
    assert lock._expired(objects, other) is False
    assert sum(clock.slept) == np.ceil(second)


def test_a_lease_ends_after_its_length_without_a_change(held, monkeypatch, caplog):
    objects, other = held
    clock = Clock(60.5, lambda: objects.write(LEASE_KEY, b"8"))
    monkeypatch.setattr(lock, "time", clock)
    assert lock._expired(objects, other) is True
    assert clock.slept == [1.0] * 60
    assert caplog.messages == [
        f"{objects.url} is locked by {other}: waiting up to 60 seconds to see whether it still "
        "runs (--take-over if it has ended)"
    ]


def test_an_unknown_job_is_waited_for(held, monkeypatch, caplog):
    objects, _ = held
    monkeypatch.setattr(lock, "time", Clock())
    assert lock._expired(objects, None) is True
    assert "is locked by an unknown job: waiting" in caplog.text


def test_the_bytes_of_lock_and_lease_are_compared(tmp_path):
    objects = Objects(str(tmp_path))
    assert lock._lock_and_lease(objects) == (None, None)
    objects.write(LOCK_KEY, b"first")
    objects.write(LEASE_KEY, b"second")
    assert lock._lock_and_lease(objects) == (b"first", b"second")
    objects.write(LOCK_KEY, b" " * (2**16 + 1))
    assert lock._lock_and_lease(objects) == (b"", b"second")


def test_a_holder_is_this_process_on_this_machine():
    before = datetime.now(UTC).replace(microsecond=0)
    holder = Holder.here(JOB)
    assert (holder.job, holder.host, holder.pid) == (JOB, socket.gethostname(), os.getpid())
    assert holder.kernel == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert before <= datetime.fromisoformat(holder.since) <= datetime.now(UTC)
    assert Holder.here(JOB).token != holder.token
    assert Holder.parse(json.dumps(asdict(holder)).encode()) == holder


def test_a_process_elsewhere_cannot_be_asked():
    mine = Holder.here(JOB)
    with lock._alive(mine.token):
        assert lock._is_running(mine) is True
        assert lock._is_running(replace(mine, kernel="another")) is None
        assert lock._is_running(replace(mine, kernel="")) is None
    assert lock._is_running(mine) is None
    sign = lock._life_file(mine.token)
    sign.touch()
    assert lock._is_running(mine) is False
    assert not sign.exists()


def test_a_holder_gives_back_its_own_lock_alone(tmp_path):
    objects, mine = Objects(str(tmp_path)), Holder.here(JOB)
    for key in (LOCK_KEY, LEASE_KEY):
        objects.write(key, json.dumps(asdict(mine)).encode())
    lock._release(objects, elsewhere().token)
    assert objects.keys("") == [LEASE_KEY, LOCK_KEY]
    lock._release(objects, mine.token)
    assert objects.keys("") == []


def test_of_two_who_take_over_at_once_the_first_to_write_is_refused(objects, monkeypatch):
    hold(objects, elsewhere())
    other = elsewhere()

    class Clock:
        @staticmethod
        def sleep(seconds):  # while this one settles
            hold(objects, other)

    monkeypatch.setattr(lock, "time", Clock)
    with (
        pytest.raises(LockedError, match="was taken over by process"),
        locked(objects, JOB, take_over=True),
    ):
        pass
    check(objects, other)


def test_a_lock_that_is_given_back_meanwhile_is_taken(objects, monkeypatch):
    monkeypatch.setattr(lock, "LEASE", 600.0)
    hold(objects, elsewhere())
    threading.Timer(0.5, objects.remove, [LOCK_KEY]).start()
    with locked(objects, JOB) as mine:
        check(objects, mine)


def test_a_holder_renews_its_lease(objects):
    with locked(objects, JOB):
        time.sleep(0.3)
        first = objects.read(LEASE_KEY)
        time.sleep(0.3)
        assert objects.read(LEASE_KEY) != first


def test_who_was_taken_over_notices_and_leaves_the_lock_alone(objects):
    with locked(objects, JOB) as first:
        for job in (JOB, "another fingerprint"):
            hold(objects, replace(elsewhere(), job=job))
            with pytest.raises(LockedError, match="was taken over by process") as error:
                check(objects, first)
            assert error.value.same == (job == JOB)
    assert objects.exists(LOCK_KEY)


def test_who_was_taken_over_leaves_no_lease_in_what_the_other_has_finished(objects):
    with locked(objects, JOB):
        objects.remove(LOCK_KEY)
        time.sleep(0.3)  # a renewal may be on its way
        objects.remove(LEASE_KEY)
        time.sleep(0.3)
    assert objects.keys("") == []


def test_a_sign_of_life_that_is_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = Holder.here(JOB)
    os.mkfifo(tmp_path / f"pdegen-{other.token}.lock")
    hold(Objects(str(tmp_path / "s")), other)
    with locked(Objects(str(tmp_path / "s")), JOB) as mine:
        check(Objects(str(tmp_path / "s")), mine)


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
    "a path": {"token": "../../etc/passwd"},
    "no word": {"host": None},
    "two lines": {"host": "node\nroot"},
    "a list of words": {"kernel": ["1"]},
    "an object": {"since": {}},
    "text": {"pid": "1"},
    "float": {"pid": 1.0},
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_one_that_cannot_be_read_is_taken_over_after_a_lease(tmp_path, content, monkeypatch):
    monkeypatch.setattr(lock, "LEASE", 0.3)
    objects = Objects(str(tmp_path))
    if isinstance(content, dict):
        content = json.dumps({**asdict(Holder.here(JOB)), **content}).encode()
    objects.write(LOCK_KEY, content)
    with locked(objects, JOB) as mine:
        check(objects, mine)
    assert objects.keys("") == []


def test_who_was_taken_over_neither_writes_nor_seals(small, finished, tmp_path, monkeypatch):
    url, compute = str(tmp_path / "s.zarr"), RecipeJob.compute

    def taken(job, store, samples):
        if samples.start == 5:
            while not store.objects.exists("records/000000.json"):
                time.sleep(0.01)
            hold(store.objects, elsewhere())
        return compute(job, store, samples)

    with monkeypatch.context() as patch:
        patch.setattr(RecipeJob, "compute", taken)
        with pytest.raises(LockedError, match="was taken over by process"):
            generate(small, url, workers=1)
    assert Objects(url).keys("records") == ["000000.json"]
    assert objects_of(generate(small, url, resume=True, take_over=True)) == objects_of(finished)
