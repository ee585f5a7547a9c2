"""Fixtures of all tests. What only some tests need is imported by its fixture, so that any test
file starts fast.

Annotations declare shapes, which are checked at run time in tests of contracts and of formulas:
those whose modules say `pytestmark = pytest.mark.usefixtures("shapes")`.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import config

from tests import checked
from tests.absent import absent

gc.disable()  # until all tests are collected: what is imported is no garbage
checked.install()  # before the first import of a module that it names


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test comes first: at the end, the other workers would wait for it."""
    items.sort(key=lambda item: item.name != "test_commands_run_in_their_order")


def pytest_collection_finish() -> None:
    """Freeze imported objects, so that garbage collection does not scan them again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Dask scheduler with one worker, in processes of their own."""
    from tests.pdegen.scheduler import scheduler_of

    with scheduler_of(tmp_path_factory.mktemp("cluster"), {}, "tcp") as address:
        yield address


@pytest.fixture(scope="module", autouse=True)
def _plugins() -> Iterator[None]:
    """What a module of tests registers ends with it."""
    from tests.plugins import registered_alone

    with registered_alone():
        yield


@pytest.fixture
def alone() -> Iterator[None]:
    """No file of a user is loaded before the test, and what the test registers ends with it."""
    from tests.plugins import in_another_process, registered_alone

    with registered_alone():
        in_another_process()
        yield


@pytest.fixture
def shapes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check shapes, unless the test is `unchecked` too; operators become several times slower."""
    config.update("jaxtyping_disable", "unchecked" in request.fixturenames)
    yield
    config.update("jaxtyping_disable", True)


@pytest.fixture
def unchecked() -> None:
    """Leave the checks of `shapes` out: for refusals by the code itself, and for compilation."""


@pytest.fixture(scope="session")
def dolfinx() -> str:
    """A Python that has it. Without one, tests are skipped, and fail where CI=true."""
    from pdegen.numerics.fenicsx.client import MissingDolfinxError, interpreter

    try:
        return interpreter()
    except MissingDolfinxError as error:
        absent(str(error))


@pytest.fixture(scope="session")
def mpi() -> None:
    """mpirun. Without it, tests are skipped, and fail where CI=true."""
    if shutil.which("mpirun") is None:
        absent("mpirun is missing: apt-get install openmpi-bin")


def _needed(missing: list[str], packages: str) -> None:
    """Without these programs tests are skipped, and fail where CI=true."""
    if missing:
        absent(f"{', '.join(missing)} missing: apt-get install {packages}")


@pytest.fixture(scope="session")
def slurm_programs() -> None:
    """SLURM and munge."""
    from tests import slurm

    _needed(slurm.missing(), "slurm-wlm munge")


@pytest.fixture(scope="session")
def ceph_programs() -> None:
    """Ceph and its gateway for S3."""
    from tests import radosgw

    _needed(radosgw.missing(), "radosgw ceph-mon ceph-osd")
