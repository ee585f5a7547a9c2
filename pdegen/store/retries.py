"""What fails on disks and object stores: in one kind of error, tried again where it may pass."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

_ATTEMPTS = 5  # at what may fail for a moment, as networks and their disks do
_PAUSE = 0.05  # seconds before the second one; each further pause is three times as long
_FINAL = {  # errors that another attempt does not mend
    errno.ENOENT, errno.EEXIST, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM,
    errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG, errno.ENOTEMPTY,
    errno.ELOOP,
}  # fmt: skip
_causes: ContextVar[list[str] | None] = ContextVar("causes", default=None)

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def retried_errors() -> Generator[list[str]]:
    """What failed meanwhile in this thread and was tried again with success, one line each."""
    found = list[str]()
    token = _causes.set(found)
    try:
        yield found
    finally:
        _causes.reset(token)


def retried(operation: Callable[P, T]) -> Callable[P, T]:
    """The operation, tried again after errors that may pass; the cause is kept (`causes`)."""

    @wraps(operation)
    def again(*arguments: P.args, **options: P.kwargs) -> T:
        for attempt in range(1, _ATTEMPTS):
            try:
                return operation(*arguments, **options)
            except OSError as error:
                if error.errno in _FINAL:
                    raise
                found = _causes.get()
                if found is not None:
                    found.append(f"attempt {attempt} failed: {error}")
                time.sleep(_PAUSE * 3 ** (attempt - 1))
        return operation(*arguments, **options)

    return again


@contextmanager
def as_os_errors(path: str) -> Generator[None]:
    """What object stores raise, as an OSError in one line."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        known: dict[type[OSError], int] = {
            FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES,
            FileExistsError: errno.EEXIST,
        }  # fmt: skip
        raise OSError(known.get(type(error), errno.EIO), str(error), path) from error
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), path) from error
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", path) from error
