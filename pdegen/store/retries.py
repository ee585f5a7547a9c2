"""Converts failures of disks and object stores to OSErrors, and retries transient failures."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

_ATTEMPTS = 5  # at an operation that may fail for a moment
_PAUSE = 0.05  # seconds before the second attempt; each further pause is three times as long
_PERMANENT = {  # errors that are not retried
    errno.ENOENT, errno.EEXIST, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM,
    errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG, errno.ENOTEMPTY,
    errno.ELOOP,
}  # fmt: skip
_errors: ContextVar[list[str] | None] = ContextVar("errors", default=None)

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def retried_errors() -> Generator[list[str]]:
    """Collect the errors after which `retried` repeats an operation in this thread. Each error is a
    line of text."""
    errors = list[str]()
    token = _errors.set(errors)
    try:
        yield errors
    finally:
        _errors.reset(token)


def retried(operation: Callable[P, T]) -> Callable[P, T]:
    """Decorate an operation so that it is repeated after transient errors. `retried_errors`
    collects these errors."""

    @wraps(operation)
    def attempt_several(*arguments: P.args, **options: P.kwargs) -> T:
        for attempt in range(1, _ATTEMPTS):
            try:
                return operation(*arguments, **options)
            except OSError as error:
                if error.errno in _PERMANENT:
                    raise
                errors = _errors.get()
                if errors is not None:
                    errors.append(f"attempt {attempt} failed: {error}")
                time.sleep(_PAUSE * 3 ** (attempt - 1))
        return operation(*arguments, **options)

    return attempt_several


@contextmanager
def as_os_errors(path: str) -> Generator[None]:
    """Convert any error of an object store to an OSError with a one-line message."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        numbers: dict[type[OSError], int] = {
            FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES,
            FileExistsError: errno.EEXIST,
        }  # fmt: skip
        raise OSError(numbers.get(type(error), errno.EIO), str(error), path) from error
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), path) from error
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", path) from error
