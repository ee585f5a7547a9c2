"""Dask workers in SLURM jobs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdegen.generation import network
from pdegen.generation.network import TLS, certificates, dashboard, few_ports
from pdegen.generation.pools import EngineError

if TYPE_CHECKING:
    from distributed import Security

_RENEWAL = 5000  # milliseconds between two checks for ended SLURM jobs


@contextmanager
def slurm_cluster() -> Iterator[Any]:
    """A Dask cluster of SLURM jobs, each of which runs one task at a time. Its options are read
    from Dask's configuration. Raises EngineError if dask-jobqueue or SLURM is not installed, or if
    an option is wrong or missing."""
    from dask import config
    from distributed.utils import get_ip

    job, options = _slurm()
    if shutil.which(job.submit_command) is None:
        raise EngineError("the scheduler slurm needs SLURM: there is no command sbatch")
    from dask_jobqueue.slurm import SLURMCluster

    configured = config.get("jobqueue.slurm")
    scheduler = {**(configured.get("scheduler-options") or {}), "dashboard_address": dashboard()}
    if not (configured.get("interface") or "interface" in scheduler or "host" in scheduler):
        scheduler["host"] = get_ip()  # the default would listen on all addresses
    with ExitStack() as stack:
        try:
            security = stack.enter_context(_in_files(certificates(), configured))
            with few_ports():
                cluster = SLURMCluster(**options, security=security, scheduler_options=scheduler)
            stack.enter_context(cluster)
        except (OSError, ValueError, TypeError) as error:
            raise EngineError(f"jobqueue.slurm in Dask's configuration: {error}") from None
        yield cluster


def keep_jobs(cluster: Any, jobs: int) -> None:
    """Submit jobs. Replace each job that reaches its time limit or is cancelled."""
    from tornado.ioloop import PeriodicCallback

    def submit() -> None:
        cluster.scale(jobs=jobs)

    cluster.loop.add_callback(submit)
    cluster.loop.add_callback(PeriodicCallback(submit, _RENEWAL).start)


@contextmanager
def _in_files(security: Security, configured: dict[str, Any]) -> Iterator[Security]:
    """Write certificates to files that SLURM jobs can read and other users cannot. The files are
    removed at the end of the context."""
    from distributed import Security

    shared = os.path.expanduser(os.path.expandvars(configured.get("shared-temp-directory") or "."))
    with tempfile.TemporaryDirectory(prefix=".pdegen-", dir=os.path.abspath(shared)) as folder:
        files = dict[str, Any]()
        for slot in TLS:
            files[slot] = getattr(security, slot)
            if files[slot] and "\n" in files[slot]:  # the text of a certificate, not its path
                path = Path(folder) / slot
                path.write_text(files[slot], "ascii")
                files[slot] = str(path)
        yield Security(require_encryption=True, **files)


def slurm_script() -> str:
    """The text of the script that starts a SLURM job. Raises EngineError if dask-jobqueue is not
    installed, or if an option is wrong or missing."""
    from distributed import Security

    job, options = _slurm()
    files = {f"tls_{name}": f"<{name}>" for name in ("ca_file", "worker_cert", "worker_key")}
    try:
        return job(
            scheduler="tls://<scheduler>", name="<name>", security=Security(**files), **options
        ).job_script()
    except (ValueError, TypeError) as error:
        raise EngineError(f"jobqueue.slurm in Dask's configuration: {error}") from None


def _slurm() -> tuple[Any, dict[str, Any]]:
    """The dask-jobqueue class for SLURM jobs, and options in addition to those of Dask's
    configuration."""
    from dask import config

    try:
        from dask_jobqueue.config import reconfigure
        from dask_jobqueue.slurm import SLURMJob
    except ImportError:
        raise EngineError(
            "the scheduler slurm needs dask-jobqueue: pip install 'pdegen-operators[slurm]'"
        ) from None
    reconfigure()  # a dask.config.set that was entered before the import removes its defaults
    configured = config.get("jobqueue.slurm")
    defaults = {"cores": 1, "processes": 1, "memory": "4GB"}
    options = {key: value for key, value in defaults.items() if configured.get(key) is None}
    extra = [
        *(configured.get("worker-extra-args") or []),
        "--no-dashboard",
        "--preload",
        network.__name__,
    ]
    return SLURMJob, {**options, "worker_extra_args": extra, "protocol": "tls"}
