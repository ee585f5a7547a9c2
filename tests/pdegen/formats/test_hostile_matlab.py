"""Hostile HDF5 and MATLAB files: nothing else is read, memory stays bounded, one line says why."""

import struct
import zlib
from contextlib import suppress

import h5py
import numpy as np
import pytest

from pdegen.equations.base import SampleError
from pdegen.formats.arrays import FormatError
from pdegen.formats.importing import import_files
from tests.pdegen.formats.files import (
    BY_HAND,
    PAIR,
    hdf5,
    mat5,
    mat5_compressed,
    mat73,
    refused,
    run,
)


def link(content, target):
    content["p"] = target


def elsewhere(content, folder):
    (folder / "secret").write_bytes(bytes(6 * 8 * 8))
    content.create_dataset("p", (6, 8), "f8", external=[(folder / "secret", 0, 6 * 8 * 8)])


def virtual(content, folder):
    layout = h5py.VirtualLayout((6, 8), "f8")
    layout[...] = h5py.VirtualSource(folder / "secret.h5", "p", (6, 8))
    content.create_virtual_dataset("p", layout)


OUTSIDE = [
    (lambda content, _: link(content, h5py.ExternalLink("secret.h5", "/p")), "p is a link \\("),
    (lambda content, _: link(content, h5py.SoftLink("/q")), "p is a link \\("),
    (elsewhere, "p is stored in another file"),
    (virtual, "p is a virtual dataset"),
    (lambda content, _: content.create_dataset("p", data=["a"], dtype=h5py.string_dtype()),
     "p holds objects or texts"),
    (lambda content, _: content.create_dataset("p", (6,), h5py.vlen_dtype(np.float64)),
     "p holds objects or texts"),
]  # fmt: skip


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("put", "match"), OUTSIDE)
def test_what_is_elsewhere_or_no_number_is_not_read(tmp_path, put, match):
    hdf5(tmp_path / "secret.h5", PAIR)
    file = hdf5(tmp_path / "p.h5", {"q": PAIR["q"]})
    with h5py.File(file, "r+") as content:
        put(content, tmp_path)
    refused(file, match=match)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("options", [{}, {"chunks": (2**10, 2**10), "compression": "gzip"}])
def test_an_absurd_shape_is_refused(tmp_path, options):
    with h5py.File(tmp_path / "p.h5", "w") as content:
        for name in "pq":
            content.create_dataset(name, (2**20, 2**20), "f8", **options)
    refused(tmp_path / "p.h5", match="claims 8,796,093,022,208 bytes")


def test_a_huge_chunk_is_refused(tmp_path):
    with h5py.File(tmp_path / "p.h5", "w") as content:
        chunk = content.create_dataset("p", (2**26, 8), "f4", chunks=(2**26, 8), compression="gzip")
        chunk.id.write_direct_chunk((0, 0), bytes(2**22))
    refused(tmp_path / "p.h5", match="chunks of 2,147,483,648 bytes")


@pytest.mark.usefixtures("forked")
def test_filters_that_would_load_a_plugin_are_refused(tmp_path):
    with h5py.File(tmp_path / "p.h5", "w") as content:
        content.create_dataset("p", (6, 8), "i4", chunks=(6, 8), scaleoffset=4)[...] = 1
    refused(tmp_path / "p.h5", match="p has the filter 6: gzip")


@pytest.mark.usefixtures("forked")
def test_groups_that_hold_each_other_end(tmp_path):
    with h5py.File(tmp_path / "p.h5", "w") as content:
        content.create_group("a/b")
        content["a/b"]["c"] = content["a"]
        group = content
        for _ in range(20):
            group = group.create_group("g")
    refused(tmp_path / "p.h5", match="too many or too deeply nested")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("write", [hdf5, mat73], ids=["hdf5", "mat73"])
@pytest.mark.parametrize("keep", [0.1, 0.9])
def test_a_cut_off_hdf5_file_is_refused(tmp_path, write, keep):
    file = write(tmp_path / "p.h5", PAIR)
    data = file.read_bytes()
    file.write_bytes(data[: int(keep * len(data))])
    refused(file, match="p.h5")


def packed_variable(claimed, unpacked, name=b"p"):
    """A compressed element of a MATLAB 5 file, and what it really unpacks to."""
    data = claimed[0] * claimed[1]
    parts = (
        struct.pack("<IIII", 6, 8, 9, 0) + struct.pack("<IIii", 5, 8, *claimed)
        + struct.pack("<HH4s", 1, len(name), name.ljust(4, b"\0")) + struct.pack("<II", 2, data)
    )  # fmt: skip
    packer = zlib.compressobj(9)
    packed = packer.compress(struct.pack("<II", 14, len(parts) + data) + parts)
    block = bytes(2**20)
    packed += b"".join(packer.compress(block[: min(2**20, unpacked - k)])
                       for k in range(0, unpacked, 2**20))  # fmt: skip
    packed += packer.flush()
    return struct.pack("<II", 15, len(packed)) + packed


def mat5_of(path, *elements):
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\0\1IM" + b"".join(elements))
    return path


@pytest.mark.usefixtures("forked")
def test_a_variable_that_claims_more_than_deflate_can_make_is_refused(tmp_path):
    element = packed_variable((2**15, 2**15), unpacked=2**10)
    refused(mat5_of(tmp_path / "p.mat", element), match="claims 1,073,741,824 bytes from")


def test_bombs_are_not_unpacked(tmp_path):
    """A chunk of 4 MB and variables of 48 bytes that unpack to 96 MB: their readers would."""
    with h5py.File(tmp_path / "p.h5", "w") as content:
        shape = (4, 2**17)
        for name in "pq":
            packer = zlib.compressobj(9)
            packed = b"".join([*(packer.compress(bytes(2**24)) for _ in range(6)), packer.flush()])
            dataset = content.create_dataset(name, shape, "f8", chunks=shape, compression="gzip")
            dataset.id.write_direct_chunk((0, 0), packed)
    elements = [packed_variable((6, 8), 3 * 2**25, name) for name in (b"p", b"q")]
    mat5_of(tmp_path / "p.mat", *elements)
    done = run(f"""
        from pdegen.formats.arrays import FormatError
        for name in ("p.h5", "p.mat"):
            before = at_most()
            try:
                import_files(["{tmp_path}/" + name], "{tmp_path}/store.zarr", ImportOptions(
                    "p", "q", "nodal", {{"train": 4}}), workers=1)
            except FormatError as error:
                print(at_most() - before, error)
    """)
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    assert [message for _, _, message in lines] == [
        "p.h5: p cannot be read: a chunk unpacks to more than 4,194,304 bytes",
        "p.mat cannot be read (cut off or damaged): Did not fully consume compressed contents of "
        "an miCOMPRESSED element. This can indicate that the .mat file is corrupted.",
    ], done.stderr
    assert all(int(kilobytes) < 48 * 1024 for kilobytes, _, _ in lines)


@pytest.mark.usefixtures("forked")
def test_a_variable_that_unpacks_to_less_is_refused(tmp_path):
    elements = [packed_variable((64, 64), 100, name) for name in (b"p", b"q")]
    refused(mat5_of(tmp_path / "p.mat", *elements), match="could not read bytes")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("write", [mat5, mat5_compressed])
@pytest.mark.parametrize("keep", [0.1, 0.99])
def test_a_cut_off_matlab_file_is_refused(tmp_path, write, keep):
    file = write(tmp_path / "p.mat", PAIR)
    data = file.read_bytes()
    file.write_bytes(data[: int(keep * len(data))])
    refused(file, match=r"cut off|an unknown format|has no array|not a recognised file")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("write", "step"), [(mat5, 1), (mat5_compressed, 4)])
def test_damaged_matlab_files_end_in_an_explained_error(tmp_path, write, step):
    """Any byte of the descriptions may be wrong; the numbers themselves may be any."""
    file = write(tmp_path / "p.mat", PAIR)
    data = file.read_bytes()
    rng = np.random.default_rng(0)
    for place in [*range(124, 180, step), *rng.integers(180, len(data), 10)]:
        changed = bytearray(data)
        changed[place] ^= 0xFF
        file.write_bytes(changed)
        with suppress(FormatError, SampleError):
            import_files([file], str(tmp_path / "s.zarr"), BY_HAND, workers=1, overwrite=True)


@pytest.mark.usefixtures("forked")
def test_cells_structs_and_texts_are_named_with_what_they_are(tmp_path):
    cell = np.empty(2, object)
    cell[:] = [1, "a"]
    others = {"p": cell, "text": "abc", "struct": {"a": 1}, "z": np.array([1j])}
    refused(mat5(tmp_path / "p.mat", others), match="p is cell: arrays of numbers")
