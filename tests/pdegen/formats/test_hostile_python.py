"""Hostile .pt and .npy files, and hostile names: nothing executes, and one line says why not."""

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict

import h5py
import numpy as np
import pytest
import torch

from pdegen.formats import sandbox
from pdegen.formats.sandbox import open_file
from tests.pdegen.formats.files import (
    PAIR,
    random,
    refused,
)


class Executed:
    """An object that runs a command when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def tensors(path, content=None):
    torch.save({k: torch.from_numpy(v) for k, v in PAIR.items()} if content is None else content,
               path)  # fmt: skip
    return path


def rewritten(path, changed, compression=zipfile.ZIP_STORED):
    """A .pt file with some entries changed: from their bytes to others, or None."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries.items():
            key = name.split("/", 1)[1]
            data = changed[key](data) if key in changed else data
            if data is not None:
                archive.writestr(name, data)
    return path


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pt_file_that_would_execute_is_not_executed(tmp_path, legacy):
    marker = tmp_path / "executed"
    torch.save({"p": Executed(marker)}, tmp_path / "p.pt",
               _use_new_zipfile_serialization=not legacy)  # fmt: skip
    refused(tmp_path / "p.pt", match="executes code" if legacy else "would execute .* posix.system")
    assert not marker.exists()


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_plain_pickle_is_not_executed(tmp_path, protocol):
    marker = tmp_path / "executed"
    (tmp_path / "p.pt").write_bytes(pickle.dumps({"p": Executed(marker)}, protocol))
    refused(tmp_path / "p.pt", match=r"pickle|an unknown format")
    assert not marker.exists()


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_no_pickle_in_an_archive_is_executed(tmp_path, protocol):
    marker = tmp_path / "executed"
    data = pickle.dumps({"p": Executed(marker)}, protocol)
    refused(rewritten(tensors(tmp_path / "p.pt"), {"data.pkl": lambda _: data}), match="execute")
    assert not marker.exists()


def test_a_pickle_that_allocates_is_not_executed(tmp_path):
    """`torch.load(weights_only=True)` makes the bytes that it asks for: more than there may be."""
    data = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x10\x85R."
    file = rewritten(tensors(tmp_path / "p.pt"), {"data.pkl": lambda _: data})
    refused(file, match="takes more than .* bytes of memory")


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def whole(number):
    return b"\x8a\x09" + number.to_bytes(9, "little", signed=True)


FLOATS = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + whole(2)
DOUBLING = b"".join(b"q%ch%c\x86" % (i, i) for i in range(60))  # 2⁶⁰ steps to a hash


def rebuilt(offset=b"K\x00", shape=b"K\x02\x85", stride=b"K\x01\x85", storage=FLOATS + b"tQ"):
    """The pickle of {"p": tensor} from the opcodes of the parts."""
    name = b"ctorch._utils\n_rebuild_tensor_v2\n("
    return b"}" + text("p") + name + storage + offset + shape + stride + b"\x89NtRs"


def pickled(path, code):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("p/data.pkl", b"\x80\x02" + code + b".")
        archive.writestr("p/version", "3\n")
        archive.writestr("p/data/0", np.arange(2, dtype="f4").tobytes())
    return path


UNENDING = {
    "deep": b"})" + b"\x85" * 3_000_000 + b"Ns",
    "laugh": b"})" + DOUBLING + b"Ns",
}


@pytest.mark.parametrize("code", UNENDING.values(), ids=UNENDING)
def test_a_pickle_without_end_is_ended(tmp_path, monkeypatch, code):
    """PyTorch hashes keys, which ends its process or takes for ever."""
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    refused(pickled(tmp_path / "p.pt", code), match="damaged or hostile")


REFUSED = {
    "shape": rebuilt(shape=whole(2**32) + b"\x85", stride=text("zz") + b"\x85"),
    "key-tuple": b"})" + b"\x85" * 7 + b"Ns",
    "key-global": b"}cbuiltins\nfloat\nNs",
    "key-long": b"}" + text("x" * 3_000_000) + b"Ns",
    "key-twice": b"}(" + text("p") + b"N" + text("p") + b"Nu",
    "no-storage": rebuilt(storage=b"N"),
    "offset-negative": rebuilt(offset=whole(-1)),
    "offset-large": rebuilt(offset=whole(2**60)),
    "shape-bool": rebuilt(shape=b"\x88\x85"),
    "shape-negative": rebuilt(shape=whole(-2) + b"\x85"),
    "stride-two": rebuilt(stride=b"K\x02K\x01\x86"),
    "empty": rebuilt(shape=b"K\x00" + 2 * whole(2**40) + b"\x87", stride=b"K\x00" * 3 + b"\x87"),
    "short": rebuilt(shape=b"K\x03\x85"),
    "no-opcode": bytes(2**22),
}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_a_pickle_of_anything_else_is_refused(tmp_path, code):
    refused(pickled(tmp_path / "p.pt", code), match="p.pt")


@pytest.mark.usefixtures("forked")
def test_the_hand_written_pickle_is_read_where_it_is_sound(tmp_path):
    array = open_file(pickled(tmp_path / "p.pt", rebuilt()), tmp_path).array("p")
    np.testing.assert_array_equal(array.values(), [0, 1])


@pytest.mark.usefixtures("forked")
def test_other_values_and_keys_beside_tensors_are_left_alone(tmp_path):
    ordered = OrderedDict(a=1, b=(2, [3.5, None, True]))
    ordered["self"] = [ordered]
    content = {"p": torch.ones(2), 7: torch.zeros(3), "o": ordered, "l": [{0: {1: "x"}}], "t": ()}
    contents = open_file(tensors(tmp_path / "p.pt", content), tmp_path)
    np.testing.assert_array_equal(contents.array("p").values(), np.ones(2))
    np.testing.assert_array_equal(contents.array("7").values(), np.zeros(3))
    kinds = {name: why.split(":")[0] for name, why in contents.unreadable.items()}
    assert kinds == {"o": "is OrderedDict", "l": "is list", "t": "is tuple"}


@pytest.mark.usefixtures("forked")
def test_a_deflated_pt_file_is_refused_before_it_is_unpacked(tmp_path):
    file = tensors(tmp_path / "p.pt")
    rewritten(file, {"data/0": lambda _: bytes(2**26)}, zipfile.ZIP_DEFLATED)
    refused(file, match="torch.save does not compress")


@pytest.mark.usefixtures("forked")
def test_a_tensor_that_claims_more_than_its_bytes_is_refused(tmp_path):
    file = tensors(tmp_path / "p.pt")
    refused(rewritten(file, {"data/0": lambda data: data[:8]}), match="p claims 384 bytes")
    refused(rewritten(tensors(file), {"data/1": lambda _: None}), match="damaged")


@pytest.mark.usefixtures("forked")
def test_views_are_read_unless_they_repeat_a_number_too_often(tmp_path):
    expanded = torch.zeros(1).expand(2**20, 2**20)
    refused(
        tensors(tmp_path / "p.pt", {"p": expanded, "q": expanded}),
        match="claims 4,398,046,511,104 bytes from 4 in the file",
    )
    every_other = torch.from_numpy(random(12, 8))[::2]
    file = tensors(tmp_path / "q.pt", {"p": every_other, "q": every_other})
    np.testing.assert_array_equal(open_file(file, tmp_path).array("q").values(), every_other)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bool", "uint8", "uint16"])
def test_views_that_are_whole_are_read(tmp_path, dtype):
    a = random(8, 12).astype(dtype)
    tensor = torch.from_numpy(a).T[2:8]  # columns first, and not from the beginning
    file = tensors(tmp_path / "p.pt", {"p": torch.from_numpy(a)[2:], "q": tensor.contiguous()})
    assert open_file(file, tmp_path).array("p").values().tobytes() == a[2:].tobytes()
    assert (
        open_file(file, tmp_path).array("q").values().tobytes()
        == np.ascontiguousarray(a.T[2:8]).tobytes()
    )
    turned = tensors(tmp_path / "q.pt", {"p": torch.from_numpy(a).T})
    np.testing.assert_array_equal(open_file(turned, tmp_path).array("p").values(), a.T)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1), (0, 2, 1)])
def test_tensors_of_three_axes_are_read_in_any_order(tmp_path, order):
    a = random(3, 4, 5)
    file = tensors(tmp_path / "p.pt", {"p": torch.from_numpy(a).permute(order)})
    read = open_file(file, tmp_path).array("p").values()
    np.testing.assert_array_equal(read, a.transpose(order))


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("content", [[{"p": 3}], {"p": 3, "q": "text"}, {"p": {}}, {}])
def test_what_holds_no_tensors_is_refused(tmp_path, content):
    refused(tensors(tmp_path / "p.pt", content), match="p.pt")


@pytest.mark.usefixtures("forked")
def test_sparse_and_other_tensors_are_refused(tmp_path):
    sparse = torch.eye(3).to_sparse()
    refused(tensors(tmp_path / "p.pt", {"p": sparse, "q": sparse}), match="p is torch.sparse_coo")
    short = torch.zeros(6, 8).to(torch.float8_e4m3fn)
    refused(
        tensors(tmp_path / "q.pt", {"p": short, "q": short}), match=r"p is of type torch\.float8"
    )


def test_an_array_of_objects_is_not_executed(tmp_path):
    marker = tmp_path / "executed"
    np.save(tmp_path / "p.npy", np.array([Executed(marker)], dtype=object), allow_pickle=True)
    refused(tmp_path / "p.npy", match="Python objects")
    assert not marker.exists()


def npy(path, header, data=b""):
    text = header.encode().ljust(118) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1048576, 1048576)}", "cut off"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", "cut off"),
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}",
            "impossible|cannot be read",
        ),
        ("{'descr': '<U8', 'fortran_order': False, 'shape': (1,)}", "cut off|of type <U8"),
        ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", "type"),
        ("{'descr': '<f8', 'fortran_order': False}", "cannot be read as .npy"),
        ("__import__('os').system('touch executed')", "cannot be read as .npy"),
        ("(" * 100, "cannot be read as .npy"),
    ],
)
def test_a_false_header_is_refused(tmp_path, header, match):
    refused(npy(tmp_path / "p.npy", header, bytes(8)), match=match)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "..", "x\ny", "", "x" * 500])
def test_names_with_parts_of_paths_are_refused(tmp_path, name):
    if name:
        refused(tensors(tmp_path / "p.pt", {name: torch.zeros(2)}), match="an array is named")
    if "/" in name.strip("/"):
        with h5py.File(tmp_path / "p.h5", "w") as content:
            content.create_dataset(name.replace("/etc", "/.."), data=np.zeros(2))
        refused(tmp_path / "p.h5", match="which has a name with other")


def test_devices_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", match="is not a file")


def test_random_bytes_are_of_no_known_format(tmp_path):
    (tmp_path / "p.mat").write_bytes(np.random.default_rng(0).bytes(10_000))
    refused(tmp_path / "p.mat", match="an unknown format")
    (tmp_path / "q.mat").write_bytes(b"")
    refused(tmp_path / "q.mat", match="an unknown format")
    buffer = io.BytesIO()
    np.save(buffer, PAIR["p"])
    (tmp_path / "r.mat").write_bytes(buffer.getvalue()[:7])
    refused(tmp_path / "r.mat", match="cannot be read as .npy")


def test_a_long_header_is_not_read(tmp_path):
    (tmp_path / "p.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1))
    refused(tmp_path / "p.npy", match="a header of 4,294,967,295 bytes")
