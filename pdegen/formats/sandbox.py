"""Readers of libraries in a child process, with limits of memory and time.

SciPy, h5py and PyTorch parse bytes of strangers in code that was not written for such bytes. In a
process of their own, a file that takes memory or time without end, or that ends the process, is an
error in one line. The child writes arrays to a folder as flat numbers, or says where they lie in
the file as such; the parent maps them, and unpickles nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.errors import check_room
from pdegen.formats import arrays as limits
from pdegen.formats.arrays import Array, Contents, FormatError, Location, printable

SECONDS = 30  # of processor time, to begin with
BYTES_IN_A_SECOND = 2**24
MEMORY = 2**30  # beside that of the library
_ANSWER_BYTES = 2**26
_PATIENCE = 20  # seconds that pass for a second of the processor: files may be far away
_KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
_SET = {"HDF5_PLUGIN_PATH": "::", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_START = "import sys; sys.path[:] = sys.argv[1:]; import pdegen.formats.sandbox as s; s.serve()"


@dataclass(frozen=True)
class Request:
    """What a reader is asked for, and its limits."""

    path: str  # the file
    folder: str  # where arrays are unpacked to
    reader: str  # "hdf5", "mat", "npz" or "pt": the module whose `read` is called
    names: Collection[str] = ()  # arrays to unpack; none to list all, and unpack the small ones
    small: int = 0  # bytes of a small array
    # seconds, memory, written: at most so many of the processor, and bytes
    seconds: int = 0
    memory: int = 0
    written: int = 0

    @property
    def file(self) -> Path:
        return Path(self.path)

    def target(self) -> Path:
        """A new file for an array."""
        return Path(self.folder, uuid.uuid4().hex)

    def wanted(self, found: Iterable[Array]) -> list[str]:
        """Names of the arrays to unpack, the smallest first."""
        left = sorted((one for one in found if one.location is None), key=lambda one: one.bytes)
        if self.names:
            return [array.name for array in left if array.name in self.names]
        together = accumulate(array.bytes for array in left)
        return [
            array.name
            for array, total in zip(left, together, strict=True)
            if array.bytes <= self.small and total <= 4 * self.small
        ]


def open_file(path: Path, reader: str, folder: Path) -> Contents:
    """What a file holds: its large arrays may have no place yet. Raises FormatError if the file is
    damaged or hostile."""
    small = limits.SMALL_BYTES
    return _read(Request(str(path), str(folder), reader, small=small), 4 * small)


def unpacked(arrays: Collection[Array], reader: str, folder: Path) -> dict[Array, Array]:
    """Arrays of one file, each with a place. Raises FormatError if the file is damaged or hostile,
    and OSError if the folder has no room."""
    left = {array.name: array for array in arrays if array.location is None}
    if not left:
        return {array: array for array in arrays}
    need = sum(array.bytes for array in left.values())
    check_room(folder, need, f" to unpack {', '.join(left)}:")
    path = next(iter(left.values())).path
    found = _read(Request(str(path), str(folder), reader, [*left]), need).arrays
    for name, array in left.items():
        if (
            name not in found
            or replace(found[name], location=None) != array
            or not found[name].location
        ):
            raise FormatError(f"{array.where} has changed while it was imported")
    return {array: array if array.location else found[array.name] for array in arrays}


def _read(request: Request, need: int) -> Contents:
    """What the child answers; it may need so many bytes for arrays."""
    path, size = request.file, request.file.stat().st_size
    seconds = SECONDS + (need + size) // BYTES_IN_A_SECOND
    memory, written = MEMORY + 3 * need + size, max(need, _ANSWER_BYTES)
    found = _asked(replace(request, seconds=seconds, memory=memory, written=written))
    if "error" in found:
        raise FormatError(found["error"])
    arrays = {}
    for name, shape, dtype, at in found.pop("arrays"):
        place = at and Location(Path(at[0]), at[1], at[2], np.dtype(at[3]))
        arrays[name] = Array(path, name, tuple(shape), np.dtype(dtype), place)
    return Contents(path, arrays=arrays, **found)


def _asked(request: Request) -> dict[str, Any]:
    """What a child process answers; an error, where it was ended for its limits or by the file."""
    answer, name = request.target(), request.file.name
    with answer.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *filter(os.path.isabs, sys.path)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.DEVNULL,
            env={key: os.environ[key] for key in _KEPT if key in os.environ} | _SET,
            start_new_session=True,
        )
        try:
            sent = json.dumps(asdict(request)).encode()
            child.communicate(sent, timeout=_PATIENCE * request.seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if child.returncode is None:  # an interrupt, too
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    try:
        with answer.open("rb") as file:
            return json.loads(file.read(_ANSWER_BYTES))
    except ValueError:
        why = f"ended its reader (exit status {child.returncode})"
        if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            why = f"takes more than {request.seconds} s to read"
        return {"error": f"{name} {why}: it is damaged, or hostile"}
    finally:
        answer.unlink()


def serve() -> None:
    """The child: reads a request, limits itself and answers."""
    request = Request(**json.load(sys.stdin))
    sys.stdout.write(json.dumps(answered(request)))
    sys.stdout.flush()
    os._exit(0)  # what the libraries have allocated need not be freed


def answered(request: Request) -> dict[str, Any]:
    """What a reader finds, or the error that it ends in, as JSON can say it."""
    name = request.file.name
    try:
        reader = importlib.import_module(f"pdegen.formats.{request.reader}")
        if request.seconds:
            _limit(request)
        found: Contents = reader.read(request)
    except FormatError as error:
        return {"error": str(error)}
    except ModuleNotFoundError as error:
        return {"error": f"{name} is read with the package {error.name}: install it"}
    except MemoryError:
        return {"error": f"{name} takes more than {request.memory:,} bytes of memory to read"}
    except Exception as error:  # of the libraries, on bytes that they were not written for
        return {"error": f"{name} cannot be read, cut off or damaged: {printable(error)}"}
    arrays = [
        [one.name, one.shape, one.dtype.str,
         at and [str(at.file), at.offset, at.order, at.stored.str]]
        for one in found.arrays.values() for at in [one.location]
    ]  # fmt: skip
    unreadable = {printable(name): printable(why) for name, why in found.unreadable.items()}
    return {
        "format": found.format, "arrays": arrays, "unreadable": unreadable,
        "attributes": dict(found.attributes),
    }  # fmt: skip


def _limit(request: Request) -> None:
    """Limit this process from now on."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    for limit, most in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + request.memory),
        (resource.RLIMIT_CPU, used + request.seconds),
        (resource.RLIMIT_FSIZE, request.written),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (most if hard < 0 else min(most, hard), hard))
