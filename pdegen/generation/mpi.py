"""Dask scheduler and workers under mpirun."""

from __future__ import annotations

import sys
import tempfile

from pdegen.generation.network import certificates, dashboard, few_ports, interface_of, tls_entries
from pdegen.generation.pools import EngineError


def start_mpi() -> None:
    """Start Dask under mpirun. Process 0 becomes the scheduler, process 1 returns to the caller,
    and the others become workers. Raises EngineError if there are fewer than three processes, or if
    dask-mpi is not installed."""
    from dask import config

    config.set({"logging.distributed": "error"})  # as without mpirun
    try:
        from dask_mpi import initialize
        from mpi4py import MPI
    except ImportError as error:
        raise EngineError(
            f"the scheduler mpi needs dask-mpi: pip install 'pdegen-operators[mpi]' ({error})"
        ) from None
    world = MPI.COMM_WORLD
    if world.size < 3:
        if world.rank == 0:
            raise EngineError(
                "the scheduler mpi needs at least 3 processes (one schedules, one drives, others "
                f"work), got {world.size}: mpirun -n 3 pdegen generate ..."
            )
        sys.exit(2)  # process 0 prints the error
    security = world.bcast(certificates() if world.rank == 0 else None)
    config.set(tls_entries(security))
    with few_ports():
        initialize(
            interface=interface_of(world.Split_type(MPI.COMM_TYPE_SHARED).size == world.size),
            protocol="tls",
            nthreads=1,
            local_directory=tempfile.gettempdir(),
            dashboard=bool(config.get("pdegen.dashboard", None)),
            dashboard_address=dashboard(),
        )
