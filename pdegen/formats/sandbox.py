"""Opening of files: their format, and their reading in a child process with limits on memory and
time.

SciPy, h5py and PyTorch are not written for hostile files. A file may exhaust memory or time, or
crash the reader. In a child process, this only causes a one-line error. The child returns the
locations of arrays in the file, or unpacks arrays to a folder. The parent maps these arrays into
memory, and unpickles nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.files import check_room
from pdegen.formats import arrays as limits
from pdegen.formats.arrays import (
    MESHES,
    SINGLE,
    Array,
    Contents,
    FormatError,
    Location,
    Request,
    printable,
)
from pdegen.formats.npy import MAGIC, npy

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


def read_file(path: Path, reader: str, folder: Path) -> Contents:
    """The contents of a file. Large arrays that must be unpacked have no location yet. Raises
    FormatError if the file is damaged or hostile."""
    small = limits.SMALL_BYTES
    return _read(Request(str(path), str(folder), reader, small=small), 4 * small)


def _unpacked(arrays: Collection[Array], reader: str, folder: Path) -> dict[Array, Array]:
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


# Opening of files to import. The content of a file determines its format. The name is not used.


_LOCAL_HEADER = 30  # bytes of an entry of a ZIP archive before its name


@dataclass(frozen=True)
class ImportedFile:
    """A file to import, and its SHA-256."""

    path: Path  # path of the file
    # size in bytes, and digest
    bytes: int
    sha256: str
    modified: int  # time of modification in nanoseconds, to detect changes

    @classmethod
    def of(cls, path: Path) -> ImportedFile:
        """Read a file once and compute its SHA-256; of a folder, that of the names and digests of
        its files. Raises FormatError if it is not a regular file, and OSError if it cannot be
        read."""
        status = path.stat()
        if path.is_dir():
            files = [cls.of(file) for file in _files_of(path)]
            names = [f"{file.path.relative_to(path)} {file.sha256}\n" for file in files]
            digest = hashlib.sha256("".join(names).encode())
            size, modified = _changes(path)
            return cls(path, size, digest.hexdigest(), modified)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path} is not a file")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        return cls(path, status.st_size, digest.hexdigest(), status.st_mtime_ns)

    def check(self) -> None:
        """Raise FormatError if the file has changed since it was read."""
        if _changes(self.path) != (self.bytes, self.modified):
            raise FormatError(f"{self.path.name} changed during the import")


def _files_of(path: Path) -> list[Path]:
    """A file, or all files of a folder."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _changes(path: Path) -> tuple[int, int]:
    """Size of a file or folder, and the time of its last change."""
    found = [file.stat() for file in _files_of(path)]
    return sum(s.st_size for s in found), max((s.st_mtime_ns for s in found), default=0)


def open_file(path: Path, folder: Path) -> Contents:
    """The contents of a file.

    Args:
        path: Path of the file.
        folder: Folder to which small arrays are unpacked if they cannot be memory-mapped in the
            file.

    Raises:
        FormatError: If the format is unknown or the file is damaged.
        OSError: If the file cannot be read.
    """
    if not path.is_file() and not is_zarr(path):
        raise FormatError(f"{path} is not a file" if path.exists() else f"{path}: no such file")
    reader = _reader(path)
    if reader == "parquet":
        raise FormatError(
            f"{path.name} is a Parquet file: give the folder that pdegen has exported, with its "
            "pdegen.json"
        )
    if reader == "npy":
        return npy(path)
    return in_groups(read_file(path, reader, folder).decoded)


def in_groups(contents: Contents) -> Contents:
    """The contents of a file that has a group for each sample, such as 0000/data and 0001/data.

    Its array is then `data`, and the arrays of the other groups are `further` ones. An array that
    is unreadable in one group is so in all. Contents of other files are returned unchanged.
    """
    groups: dict[str, dict[str, Array]] = {}
    unreadable = dict(contents.unreadable)
    for name in contents.unreadable:
        group, _, member = name.partition("/")
        if member and group.isdecimal():
            unreadable[member] = f"of the group {group} {unreadable.pop(name)}"
            groups.setdefault(group, {})
    for name, array in contents.arrays.items():
        group, _, member = name.partition("/")
        if member not in unreadable:
            groups.setdefault(group, {})[member] = array
    members = [
        {name: (array.shape, array.dtype) for name, array in groups[group].items()}
        for group in sorted(groups)
    ]
    numbered = len(groups) > 1 and all(group.isdecimal() for group in groups)
    numbered = numbered and members[0] and "" not in members[0]
    if not numbered or any(of != members[0] for of in members):
        return contents
    first, *others = [groups[group] for group in sorted(groups, key=lambda name: (int(name), name))]
    units: dict[str, object] = {}
    for key, value in contents.attributes.items():
        member = key.partition("/")[2]
        if member.endswith("@units") and units.setdefault(member, value) != value:
            raise FormatError(f"{contents.path.name}: {member} differs between the groups")
    return replace(
        contents,
        arrays=first,
        unreadable=unreadable,
        further={name: tuple(other[name] for other in others) for name in first},
        attributes={
            key.partition("/")[2] if key[:1].isdecimal() else key: value
            for key, value in contents.attributes.items()
        },
        dims={name.partition("/")[2]: axes for name, axes in contents.dims.items()},
        groups=len(groups),
    )  # fmt: skip


def unpacked(arrays: Iterable[Array], folder: Path) -> dict[Array, Array]:
    """Unpack arrays to files in a folder, if they have no location yet. Returns a dictionary that
    maps each given array to the same array with a location. Raises FormatError if a file is damaged
    or unpacks to more bytes than it states. Raises OSError if the disk of the folder is full."""
    ready: dict[Array, Array] = {}
    arrays = list(dict.fromkeys(arrays))
    for path in dict.fromkeys(array.path for array in arrays):
        of_file = [array for array in arrays if array.path == path]
        ready |= _unpacked(of_file, _reader(path), folder)
    return ready


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr group or array."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def _reader(path: Path) -> str:
    """Name of the module that reads a file. It is determined by the content of the file."""
    if path.is_dir():
        return "libraries"
    with path.open("rb") as file:
        head = file.read(256)
        if head.startswith(MAGIC):
            return "npy"
        if head.startswith(b"PAR1"):
            return "parquet"
        if head[:4] in (b"CDF\x01", b"CDF\x02", b"CDF\x05", b"GRIB"):
            return "libraries"
        if head.startswith(b"PK\x03\x04"):
            file.seek(_LOCAL_HEADER)  # name of the first entry
            name = file.read(int.from_bytes(head[26:28], "little"))
            return "npz" if name.endswith(b".npy") else "pt"
        for offset in (0, *(2**k for k in range(9, 32))):  # where HDF5 allows its signature
            file.seek(offset)
            if file.read(8) == b"\x89HDF\r\n\x1a\n":
                return "hdf5"
    if head[124:128] in (b"\x00\x01IM", b"\x01\x00MI") or _is_matlab_4(head):
        return "mat"
    if head[:1] == b"\x80" or head[2:4] == b"\x8a\x0a":
        raise FormatError(
            f"{path.name} is a pickle, which executes code when it is read: write tensors with "
            "torch.save of PyTorch 1.6 or newer, or arrays with numpy.save"
        )
    if any(start in head for start in MESHES):
        return "libraries"
    raise FormatError(
        f"{path.name} is of an unknown format: MATLAB, HDF5, netCDF, Zarr, .npy, .npz, .pt, VTK, "
        "VTU, XDMF and Gmsh can be imported"
    )


def _is_matlab_4(head: bytes) -> bool:
    """Whether a file begins with the header of a matrix of MATLAB 4.

    The header has five numbers: the type as the digits M, 0, P and T, of which M is the byte order;
    the numbers of rows and columns; whether the matrix is complex; and the length of its name.
    """
    for order, m in (("<", 0), (">", 1)):
        if len(head) < 20:
            break
        kind, rows, columns, parts, name = struct.unpack_from(f"{order}5i", head)
        known = kind in {1000 * m + 10 * p + t for p in range(6) for t in range(3)}
        if known and min(rows, columns) >= 0 and parts in (0, 1) and 1 < name < 128:
            return True
    return False


def merged(contents: list[Contents]) -> list[Contents]:
    """Merge the contents of .npy files, and of .pt files of one tensor, each of which stores one
    array of a dataset. Other contents are returned unchanged. Raises FormatError if two arrays have
    the same name."""
    single = [file for file in contents if file.format in SINGLE]
    if not single:
        return contents
    if len({file.format for file in contents}) > 1:
        raise FormatError(
            ".npy files, and .pt files of one tensor, can be imported only with others of their "
            "kind"
        )
    arrays = {name: array for file in single for name, array in file.arrays.items()}
    if len(arrays) < len(single):
        raise FormatError("two files of one array have the same name")
    return [replace(single[0], arrays=arrays)]


def joined(contents: list[Contents]) -> Contents:
    """The contents of files, each of which is a sample. The array of a file of one array is named
    `values`. Raises FormatError if the files do not have the same arrays."""
    single = contents[0].format in SINGLE
    named = [
        dict(zip(["values"] if single else file.arrays, file.arrays.values(), strict=True))
        for file in contents
    ]
    first = named[0]
    for file, arrays in zip(contents, named, strict=True):
        for name in {*first, *arrays}:
            one, other = (of.get(name) for of in (first, arrays))
            for of in (contents[0], file):
                if name in of.unreadable:
                    of.array(name)  # raises FormatError, with the reason
            if one is None or other is None:
                raise FormatError(
                    f"{contents[0].path.name} and {file.path.name} have different arrays: {name} "
                    "is in one of them"
                )
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                raise FormatError(
                    f"{one.where} {one.shape} {one.dtype} and {other.where} {other.shape} "
                    f"{other.dtype} differ: samples have equal shapes"
                )
        for key, value in file.attributes.items():
            if key.endswith("@units") and contents[0].attributes.get(key) != value:
                raise FormatError(
                    f"{contents[0].path.name} and {file.path.name} have different units: {key}"
                )
        for name, dims in file.dims.items():
            if contents[0].dims.get(name) != dims:
                raise FormatError(
                    f"{contents[0].path.name} and {file.path.name} have the axes of {name} in "
                    "different orders"
                )
        if file.groups:
            raise FormatError(f"{file.path.name} has a group for each sample: it is no sample")
    further = {name: tuple(arrays[name] for arrays in named[1:]) for name in first}
    return replace(contents[0], arrays=first, further=further, groups=len(contents))


# The child process.


def serve() -> None:
    """The main function of the child process: read a request, set the limits, and answer."""
    request = Request(**json.load(sys.stdin))
    sys.stdout.write(json.dumps(answered(request)))
    sys.stdout.flush()
    os._exit(0)  # what the libraries have allocated need not be freed


def module_of(request: Request) -> str:
    """Name of the module whose function `read` reads a file."""
    modules = {"npz": "npy", "parquet": "huggingface"}
    return f"pdegen.formats.{modules.get(request.reader, request.reader)}"


def answered(request: Request) -> dict[str, Any]:
    """Read a file. Returns its contents as JSON, or the error as JSON if the reader fails."""
    name = request.file.name
    try:
        reader = importlib.import_module(module_of(request))
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
    try:
        used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        used = 2**10 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    for limit, most in (
        (resource.RLIMIT_AS, used + request.memory),
        (resource.RLIMIT_CPU, spent + request.seconds),
        (resource.RLIMIT_FSIZE, request.written),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (most if hard < 0 else min(most, hard), hard))
