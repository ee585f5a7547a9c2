"""Jobs of a real SLURM on loopback, through the command line."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.pdegen.conftest import SMALL
from tests.slurm import asked, slurm
from tests.stores import objects_of

pytestmark = pytest.mark.slow
PDEGEN = str(Path(sys.executable).parent / "pdegen")
LONG = {**SMALL, "samples": 300, "shard": 1, "splits.train": 200}


@pytest.fixture(scope="module")
def environment(slurm_programs) -> Iterator[dict[str, str]]:
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        slurm(Path(folder)) as environment,
    ):
        yield environment | {
            "DASK_JOBQUEUE__SLURM__INTERFACE": "lo",
            "DASK_JOBQUEUE__SLURM__MEMORY": "2GB",
            "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "1s",
        }


def words(url: Path, recipe: dict[str, int], *more: str, name: str = "burgers-quick") -> list[str]:
    return [PDEGEN, "generate", name, "--out", str(url), *more,
            *(f"--set={key}={value}" for key, value in recipe.items())]  # fmt: skip


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, bytes]:
    """The bytes of the long recipe, made by threads."""
    url = tmp_path_factory.mktemp("threads") / "s.zarr"
    subprocess.run(words(url, LONG), check=True, capture_output=True)
    return objects_of(str(url))


@pytest.fixture
def begun(environment, tmp_path) -> Iterator[subprocess.Popen[str]]:
    """A driver in `tmp_path`, some of whose shards are there."""
    driver = subprocess.Popen(
        words(tmp_path / "s.zarr", LONG, "--scheduler", "slurm", "--workers", "1"),
        env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while len(list((tmp_path / "s.zarr").glob("records/*"))) < 5:
        assert driver.poll() is None, driver.communicate()[1]
        time.sleep(0.01)
    with driver:
        yield driver
        driver.kill()


def jobs(folder: Path) -> int:
    """How many have written their output there."""
    return len(list(folder.glob("slurm-*.out")))


def test_two_jobs_make_the_bytes_of_threads(environment, finished, tmp_path):
    done = subprocess.run(
        words(tmp_path / "s.zarr", SMALL, "--scheduler", "slurm", "--workers", "2"),
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert objects_of(str(tmp_path / "s.zarr")) == objects_of(finished)
    assert jobs(tmp_path) == 2


def test_everything_of_it_listens_on_loopback(begun, environment):
    places = {
        connection.laddr.ip
        for process in psutil.process_iter()
        if environment["SLURM_CONF"] in environment_of(process)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert places == {"127.0.0.1"}


def environment_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.environ().values())
    except psutil.Error:
        return []


def test_a_job_that_is_cancelled_is_replaced(begun, environment, expected, tmp_path):
    for number in asked(environment, "squeue", "-h", "-o", "%i").split():
        subprocess.run(["scancel", number], env=environment, check=True)
    said = begun.communicate(timeout=180)[1]
    assert begun.returncode == 0, said
    assert jobs(tmp_path) == 2
    assert objects_of(str(tmp_path / "s.zarr")) == expected


def test_what_a_killed_driver_left_is_resumed(begun, environment, expected, tmp_path):
    begun.kill()
    begun.wait()
    end = time.monotonic() + 120
    while asked(environment, "squeue", "-h"):  # the job ends, for its scheduler is gone
        assert time.monotonic() < end
        time.sleep(0.2)
    assert objects_of(str(tmp_path / "s.zarr")) != expected
    done = subprocess.run(
        words(tmp_path / "s.zarr", LONG, "--scheduler", "slurm", "--workers", "1",
              "--resume", "--take-over"),
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert objects_of(str(tmp_path / "s.zarr")) == expected
