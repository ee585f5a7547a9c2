"""Operations that fail for a moment are repeated, and others are not."""

import errno

import pytest

from pdegen.store import objects
from pdegen.store.objects import as_os_errors, retried, retried_errors


class Flaky:
    """An operation that raises the given errors, one in each call, and then succeeds."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), []

    def __call__(self, *arguments, **options):
        self.calls.append((arguments, options))
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses between attempts, which take no time."""
    taken = []
    monkeypatch.setattr(objects.time, "sleep", taken.append)
    return taken


def transient(count):
    return [OSError(errno.EIO, f"fault {i}") for i in range(count)]


def test_a_transient_fault_is_repeated_four_times_with_longer_pauses(pauses):
    operation = Flaky(*transient(4))
    with retried_errors() as errors:
        assert retried(operation)("key", 3, check=None) == "done"
    assert operation.calls == [(("key", 3), {"check": None})] * 5
    assert pauses == pytest.approx([0.05, 0.15, 0.45, 1.35], rel=1e-12)
    assert errors == [f"attempt {i + 1} failed: [Errno 5] fault {i}" for i in range(4)]


def test_the_fifth_fault_is_raised():
    operation = Flaky(*transient(6))
    with retried_errors() as errors, pytest.raises(OSError, match="fault 4"):
        retried(operation)()
    assert (len(operation.calls), len(errors)) == (5, 4)


PERMANENT = [
    "ENOENT", "EEXIST", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "ENOTDIR", "EISDIR",
    "ENAMETOOLONG", "EINVAL", "EFBIG", "ENOTEMPTY", "ELOOP",
]  # fmt: skip


@pytest.mark.parametrize("name", PERMANENT)
def test_a_permanent_fault_is_raised_at_once(name, pauses):
    operation = Flaky(OSError(getattr(errno, name), "permanent"))
    with retried_errors() as errors, pytest.raises(OSError, match="permanent"):
        retried(operation)()
    assert (len(operation.calls), pauses, errors) == (1, [], [])


def test_other_errors_are_raised_at_once():
    operation = Flaky(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retried(operation)()
    assert len(operation.calls) == 1


def test_faults_are_collected_in_the_context_alone():
    retried(Flaky(*transient(1)))()
    with retried_errors() as outer:
        with retried_errors() as inner:
            retried(Flaky(*transient(2)))()
        retried(Flaky(*transient(1)))()
    retried(Flaky(*transient(1)))()
    assert (len(outer), len(inner)) == (1, 2)


@pytest.mark.parametrize(
    ("error", "number", "text"),
    [
        (FileNotFoundError("no key"), errno.ENOENT, "no key"),
        (PermissionError("no right"), errno.EACCES, "no right"),
        (FileExistsError("there"), errno.EEXIST, "there"),
        (OSError("a server"), errno.EIO, "a server"),
        (ValueError("no bucket"), errno.EINVAL, "no bucket"),
        (KeyError("x"), errno.EIO, "KeyError: 'x'"),
    ],
)
def test_errors_of_object_stores_get_a_number_and_the_path(error, number, text):
    with pytest.raises(OSError, match="s3://data/x") as caught, as_os_errors("s3://data/x"):
        raise error
    raised = caught.value
    assert (raised.errno, raised.strerror, raised.filename) == (number, text, "s3://data/x")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), ImportError("a"), MemoryError()])
def test_errors_that_say_what_is_wrong_stay_as_they_are(error):
    with pytest.raises(type(error)) as caught, as_os_errors("s3://data/x"):
        raise error
    assert caught.value is error
