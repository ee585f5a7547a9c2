"""Reading of files in a child process, with limits on memory and time.

SciPy, h5py and PyTorch are not written for hostile files. A file may exhaust memory or time, or
crash the reader. In a child process, this only causes a one-line error. The child returns the
locations of arrays in the file, or unpacks arrays to a folder. The parent maps these arrays into
memory, and unpickles nothing.
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

from pdegen.files import check_room
from pdegen.formats import arrays as limits
from pdegen.formats.arrays import Array, Contents, FormatError, Location, printable

SECONDS = 30  # processor time for any file, in seconds
BYTES_IN_A_SECOND = 2**24
MEMORY = 2**30  # bytes, in addition to the library
_ANSWER_BYTES = 2**26
_WALL_FACTOR = 20  # allowed wall time per processor time, for files on slow disks
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
_SET = {
    "HDF5_PLUGIN_PATH": "::", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # others reserve memory, which counts as used
}  # fmt: skip
_START = "import sys; sys.path[:] = sys.argv[1:]; import pdegen.formats.sandbox as s; s.serve()"


@dataclass(frozen=True)
class Request:
    """A request to the child process, with its limits."""

    path: str  # path of the file
    folder: str  # folder to which arrays are unpacked
    # "hdf5", "mat", "npz", "parquet", "pt" or "xarrays": the module whose `read` is called
    reader: str
    names: Collection[str] = ()  # arrays to unpack; empty: list all, unpack the small ones
    small: int = 0  # largest size of a small array in bytes
    # limits of processor time in seconds, and of memory and written files in bytes
    seconds: int = 0
    memory: int = 0
    written: int = 0

    @property
    def file(self) -> Path:
        """The path of the file to read."""
        return Path(self.path)

    def target(self) -> Path:
        """A new path, at which an array can be written."""
        return Path(self.folder, uuid.uuid4().hex)

    def wanted(self, arrays: Iterable[Array]) -> list[str]:
        """Names of the arrays that this request has to unpack, in order of increasing size."""
        packed = [array for array in arrays if array.location is None]
        packed.sort(key=lambda array: array.bytes)
        if self.names:
            return [array.name for array in packed if array.name in self.names]
        totals = accumulate(array.bytes for array in packed)
        return [
            array.name
            for array, total in zip(packed, totals, strict=True)
            if array.bytes <= self.small and total <= 4 * self.small
        ]


def open_file(path: Path, reader: str, folder: Path) -> Contents:
    """The contents of a file. Large arrays that must be unpacked have no location yet. Raises
    FormatError if the file is damaged or hostile."""
    small = limits.SMALL_BYTES
    return _read(Request(str(path), str(folder), reader, small=small), 4 * small)


def unpacked(arrays: Collection[Array], reader: str, folder: Path) -> dict[Array, Array]:
    """Unpack those arrays of a file that have no location yet. Returns a dictionary that maps each
    given array to the same array with a location. Raises FormatError if the file is damaged or
    hostile, and OSError if the folder has no room."""
    packed = {array.name: array for array in arrays if array.location is None}
    if not packed:
        return {array: array for array in arrays}
    need = sum(array.bytes for array in packed.values())
    check_room(folder, need, f" to unpack {', '.join(packed)}:")
    path = next(iter(packed.values())).path
    ready = _read(Request(str(path), str(folder), reader, [*packed]), need).arrays
    for name, array in packed.items():
        same = name in ready and replace(ready[name], location=None) == array.undecoded
        if not same or not ready[name].location:
            raise FormatError(f"{array.where} changed during the import")
    return {
        array: replace(array, location=array.location or ready[array.name].location)
        for array in arrays
    }


def _read(request: Request, need: int) -> Contents:
    """Run a child process and return the contents that it has read."""
    path = request.file
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    seconds = SECONDS + (need + size) // BYTES_IN_A_SECOND
    memory, written = MEMORY + 3 * need + size, max(need, _ANSWER_BYTES)
    answer = _answer(replace(request, seconds=seconds, memory=memory, written=written))
    if "error" in answer:
        raise FormatError(answer["error"])
    arrays = {}
    for name, shape, dtype, at in answer.pop("arrays"):
        location = at and Location(Path(at[0]), at[1], at[2], np.dtype(at[3]))
        arrays[name] = Array(path, name, tuple(shape), np.dtype(dtype), location)
    return Contents(path, arrays=arrays, **answer)


def _answer(request: Request) -> dict[str, Any]:
    """Run a child process and return its answer."""
    file, name = request.target(), request.file.name
    with file.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *filter(os.path.isabs, sys.path)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.DEVNULL,
            env={key: os.environ[key] for key in _INHERITED if key in os.environ} | _SET,
            start_new_session=True,
        )
        try:
            sent = json.dumps(asdict(request)).encode()
            child.communicate(sent, timeout=_WALL_FACTOR * request.seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if child.returncode is None:  # also after an interrupt
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    try:
        with file.open("rb") as answer:
            return json.loads(answer.read(_ANSWER_BYTES))
    except ValueError:
        problem = f"ended its reader (exit status {child.returncode})"
        if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            problem = f"takes more than {request.seconds} s to read"
        return {"error": f"{name} {problem}: it is damaged or hostile"}
    finally:
        file.unlink()


def serve() -> None:
    """The main function of the child process: read a request, set the limits, and answer."""
    request = Request(**json.load(sys.stdin))
    sys.stdout.write(json.dumps(answered(request)))
    sys.stdout.flush()
    os._exit(0)  # what the libraries have allocated need not be freed


def answered(request: Request) -> dict[str, Any]:
    """Read a file. Returns its contents as JSON, or the error as JSON if the reader fails."""
    name = request.file.name
    try:
        reader = importlib.import_module(f"pdegen.formats.{request.reader}")
        if request.seconds:
            _limit(request)
        contents: Contents = reader.read(request)
    except FormatError as error:
        return {"error": str(error)}
    except ModuleNotFoundError as error:
        return {"error": f"{name} needs the package {error.name}: install it"}
    except MemoryError:
        return {"error": f"{name} takes more than {request.memory:,} bytes of memory to read"}
    except Exception as error:  # libraries raise any error on damaged files
        return {"error": f"{name} cannot be read (cut off or damaged): {printable(error)}"}
    arrays = [
        [array.name, array.shape, array.dtype.str,
         at and [str(at.file), at.offset, at.order, at.stored.str]]
        for array in contents.arrays.values() for at in [array.location]
    ]  # fmt: skip
    unreadable = {printable(name): printable(why) for name, why in contents.unreadable.items()}
    return {
        "format": contents.format, "arrays": arrays, "unreadable": unreadable,
        "attributes": dict(contents.attributes), "dims": dict(contents.dims),
    }  # fmt: skip


def _limit(request: Request) -> None:
    """Set the limits of this process on memory, time and written bytes."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    for limit, most in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + request.memory),
        (resource.RLIMIT_CPU, spent + request.seconds),
        (resource.RLIMIT_FSIZE, request.written),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (most if hard < 0 else min(most, hard), hard))
