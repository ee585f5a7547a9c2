"""Compilation of loops by Numba, once for all processes of a user.

Numba keeps compiled code in the first of these folders that it can write: NUMBA_CACHE_DIR,
`__pycache__` beside the source, and the cache of the user (~/.cache/numba). The files are pickles.
Whoever can write them can run code in this process, so folders of other users are not used. Without
a folder each process compiles for itself.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc

_LOCK = ".compiling"  # file in the folder of compiled code; the process that compiles has its lock
_PATIENCE = 120.0  # seconds to wait for another process before compiling too
_INTERVAL = 0.02  # seconds between two attempts to take the lock

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*, inner: bool = False, **options: object) -> Callable[[Function], Function]:
    """A decorator that compiles a function at its first call, for the types of the arguments.

    The function runs without Python's global lock. Its code is kept on disk, unless no folder is
    safe. If several processes need the code at once, one compiles while the others wait.

    Args:
        inner: Whether compiled functions alone call the function. It then needs no code for calls
            from Python, which takes a sixth of the time to compile.
        options: Further options of `numba.njit`, such as `fastmath`.
    """

    def decorate(function: Function) -> Function:
        # code for calls from C is not needed
        jit: Any = numba.njit
        dispatcher = jit(nogil=True, no_cpython_wrapper=inner, no_cfunc_wrapper=True, **options)(
            function
        )
        cache = _cache_of(function)
        if cache is not None:
            dispatcher._cache = cache
        return dispatcher

    return decorate


def address_of(function: Callable[..., None], signature: Any, version: str) -> int:
    """Compile a function for code that calls it by its address, with the cache of `compiled`.

    The compiled code lives as long as the process. Numba compiles it again if its file changes, or
    if the version of what it is compiled with from other files changes.
    """
    code: Any = CFunc(function, (signature.args, signature.return_type), {}, {"nopython": True})
    cache = _cache_of(function)
    if cache is not None:
        cache.version = version
        code._cache = cache
    code.compile()
    _kept.append(code)
    return int(code.address)


_kept = list[Any]()


def _cache_of(function: Callable[..., Any]) -> _Cache | None:
    """The compiled code of a function on disk; None if no folder can be written or is safe."""
    try:
        cache = _Cache(function)
    except RuntimeError:  # no folder can be written
        return None
    source = Path(function.__code__.co_filename).parent
    return cache if _is_safe(Path(cache.cache_path), source) else None


def _is_safe(folder: Path, source: Path) -> bool:
    """Whether nobody but this user, root and members of the folder's group can write compiled code.

    A folder inside that of the source is as safe as the source.
    """
    if source in folder.parents:
        return True
    for path in (folder, folder.parent):
        status = path.stat()
        public = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or public:
            return False
    return True


class _Cache(FunctionCache):
    """Compiled code on disk. A process that finds no code locks the folder until it saves code.

    Numba calls both methods under its own lock, so one thread at a time is here. It compiles inner
    functions, which are loaded and saved, between loading and saving the outer function.
    """

    version = ""  # a part of the key of compiled code
    _depth = 0  # nested compilations of this process
    _lock = -1  # file descriptor of the lock, while `_depth` > 0

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), self.version)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        code = super().load_overload(sig, target_context)
        if code is None:
            if not _Cache._depth:
                _Cache._lock = _locked(Path(self.cache_path))
            _Cache._depth += 1
            code = super().load_overload(sig, target_context)  # of another process, meanwhile
            if code is not None:
                self._release()
        return code

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        finally:
            self._release()

    def _release(self) -> None:
        _Cache._depth -= 1
        if not _Cache._depth and _Cache._lock >= 0:
            os.close(_Cache._lock)


def _locked(folder: Path) -> int:
    """A file descriptor that holds the lock of the folder."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return -1
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(_INTERVAL)
        except OSError:
            break
    return descriptor
