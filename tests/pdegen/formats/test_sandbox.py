"""The child process: it is limited, ended and clean, and unpacks block by block."""

import h5py
import numpy as np
import pytest

from pdegen.formats import hdf5, sandbox
from pdegen.formats.arrays import FormatError
from pdegen.formats.sandbox import Request, open_file, unpacked
from tests.pdegen.formats.files import mat5, mat73_compressed, random


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """Runs code as a reader in the child: what it prints, or the error."""

    def run(code, **request):
        start = "import sys; sys.path[:] = sys.argv[1:]; import pdegen.formats.sandbox as s\n"
        start += "import importlib, types\n"
        start += f"def read(request):\n    import json, os, sys\n    {code}\n"
        start += (
            "importlib.import_module = lambda name: types.SimpleNamespace(read=read)\ns.serve()"
        )
        monkeypatch.setattr(sandbox, "_START", start)
        request = {"seconds": 2, "memory": 2**28, "written": 2**20} | request
        return sandbox._answer(Request(str(tmp_path / "p.h5"), str(tmp_path), "any", **request))

    return run


def test_a_reader_that_takes_too_much_is_ended(reader, monkeypatch, tmp_path):
    assert "takes more than 1 s to read" in reader("while True: pass", seconds=1)["error"]
    assert "bytes of memory" in reader("bytearray(2**29)")["error"]
    assert "exit status -11" in reader("os.kill(os.getpid(), 11)")["error"]
    file = tmp_path / "f"
    assert "File too large" in reader(f"open({str(file)!r}, 'wb').write(bytes(2**21))")["error"]
    monkeypatch.setattr(sandbox, "_WALL_FACTOR", 1)
    sleeping = f"""
    import subprocess
    subprocess.Popen(['sh', '-c', 'sleep 4; touch {file}.late'])
    import time; time.sleep(60)"""
    assert "takes more than 3 s to read" in reader(sleeping, seconds=3)["error"]
    assert not list(tmp_path.glob("*.late"))


def test_the_environment_is_clean(reader, monkeypatch):
    monkeypatch.setenv("PYTHONSTARTUP", "/tmp/evil")
    monkeypatch.setenv("HDF5_PLUGIN_PATH", "/tmp/evil")
    monkeypatch.setenv("SECRET", "1")
    known = ["PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "HDF5_PLUGIN_PATH",
             "ARROW_DEFAULT_MEMORY_POOL"]  # fmt: skip
    found = reader(
        f"raise ValueError(os.environ['HDF5_PLUGIN_PATH'], sys.flags.isolated, "
        f"[k for k in os.environ if k not in {known} and 'NUM_THREADS' not in k])"
    )
    assert found["error"].endswith("('::', 1, [])")


def test_a_missing_library_is_named(reader):
    found = reader("import nosuchlibrary")
    assert found["error"] == "p.h5 needs the package nosuchlibrary: install it"


@pytest.mark.parametrize("write", [mat5, mat73_compressed], ids=lambda f: f.__name__)
def test_large_arrays_are_unpacked_when_they_are_needed(tmp_path, monkeypatch, write):
    monkeypatch.setattr("pdegen.formats.arrays.SMALL_BYTES", 100)
    a, small = random(40, 30), random(3, 3)
    contents = open_file(write(tmp_path / "p.mat", {"a": a, "small": small}), tmp_path)
    np.testing.assert_array_equal(contents.array("small").values(), small)
    with pytest.raises(FormatError, match="a coordinate has at most"):
        contents.array("a").values()
    (array,) = unpacked([contents.array("a")], tmp_path).values()
    np.testing.assert_array_equal(array.read((slice(3, 7), slice(None))), a[3:7])


@pytest.mark.parametrize("chunks", [None, (3, 5), (40, 1), (1, 30)])
def test_blocks_cover_an_array_once_and_cut_no_chunk(tmp_path, monkeypatch, chunks):
    monkeypatch.setattr(hdf5, "_BLOCK", 8 * 100)
    with h5py.File(tmp_path / "p.h5", "w") as file:
        dataset = file.create_dataset("p", (40, 30), "f8", chunks=chunks)
        count = np.zeros((40, 30), int)
        for index in hdf5._blocks(dataset):
            count[index] += 1
            assert all(s.start % n == 0 for s, n in zip(index, chunks or (1, 1), strict=True))
            assert count[index].size <= 100
    assert (count == 1).all()
