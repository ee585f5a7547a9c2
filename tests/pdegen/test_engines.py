"""The same bytes on every engine; workers that die; tasks that fail."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError
from urllib.request import urlopen

import dask
import numpy as np
import pytest
from threadpoolctl import threadpool_info
from tornado.ioloop import IOLoop

import pdegen
from pdegen.equations.base import SampleError
from pdegen.generation import pools
from pdegen.generation.generate import Progress, generate
from pdegen.generation.pools import KINDS, EngineError, WorkerLostError, pool, slurm_script
from pdegen.recipe import load_recipe
from tests.forked import forked
from tests.pdegen.conftest import SMALL
from tests.pdegen.small import SMALL as FORMS
from tests.stores import objects_of

BIN = Path(sys.executable).parent
FAMILIES = (
    "allen-cahn-3d", "cahn-hilliard", "dam-break-quick", "decaying-3d", "diffusion-reaction",
    "gray-scott-3d", "kolmogorov-quick", "ns-decaying-nu", "pdebench-advection-quick",
    "pdebench-burgers-quick", "pdebench-reaction-quick", "poisson-quick", "wave-quick",
)  # fmt: skip


def test_an_existing_scheduler_makes_the_same_bytes(small, finished, tmp_path, cluster):
    seen: list[Progress] = []
    store = generate(small, str(tmp_path / "s.zarr"), scheduler=cluster, progress=seen.append)
    assert objects_of(store) == objects_of(finished)
    assert [p.done for p in seen] == [1, 2, 3]


@pytest.mark.parametrize("name", FAMILIES)
def test_workers_dask_and_a_kill_make_the_same_bytes(name, tmp_path, cluster):
    """The cluster resumes what a killed job of one worker has left."""
    five = {"samples": 5, "shard": 2, "splits.train": 3, "splits.validation": 1, "splits.test": 1}
    recipe = load_recipe(name).with_overrides({**FORMS[name][0], **five})
    one, two, left = (str(tmp_path / f"{kind}.zarr") for kind in ("one", "two", "left"))
    expected = objects_of(generate(recipe, one, workers=1))
    assert objects_of(generate(recipe, two, workers=2)) == expected

    def killed(progress):
        if progress.done:
            os.kill(os.getpid(), signal.SIGKILL)

    ended = forked(lambda: generate(recipe, left, workers=1, progress=killed))
    assert ended.killed, ended.why
    resumed = generate(recipe, left, scheduler=cluster, resume=True, take_over=True)
    assert objects_of(resumed) == expected


def test_a_cluster_with_a_dashboard_makes_the_same_bytes_and_says_where_it_is(
    small, finished, tmp_path
):
    lines, pages = [], []

    def watched(progress: Progress) -> None:
        lines.extend(progress.notes)
        if progress.done == 1:
            address = lines[0].split()[1]
            assert address.startswith("http://127.0.0.1:")
            with urlopen(address.replace("status", "info/main/workers.html"), timeout=20) as page:
                pages.append(page.read())

    url = str(tmp_path / "s.zarr")
    store = generate(small, url, scheduler="dask", workers=2, progress=watched)
    assert objects_of(store) == objects_of(finished)
    assert len(lines) == 1
    assert pages[0].count(b"tls://127.0.0.1:") >= 2  # one for each worker
    with pytest.raises(URLError):  # it ends with the job
        urlopen(lines[0].split()[1], timeout=5)


def test_workers_use_one_thread_for_matrix_products(cluster):
    with pool(cluster, None) as workers:
        ((_, counts),) = workers.run(threads_here, [0])
    assert counts
    assert set(counts) == {1}


def threads_here(_: int) -> list[int]:
    return [library["num_threads"] for library in threadpool_info()]


def test_a_failing_sample_is_named_from_afar(small, tmp_path, cluster):
    thin = small.with_overrides({"viscosity": 0.01})
    errors = []
    for scheduler in ("threads", cluster):
        with pytest.raises(SampleError) as error:
            generate(thin, str(tmp_path / f"{len(errors)}.zarr"), workers=1, scheduler=scheduler)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("scheduler", "what"),
    [
        ("thread", f"unknown scheduler 'thread': known: {', '.join(KINDS)}, or"),
        ("http://x:1", "unknown scheduler"),
        ("127.0.0.1", "unknown scheduler"),
    ],
)
def test_a_wrong_word_is_refused_before_anything_is_written(small, tmp_path, scheduler, what):
    with pytest.raises(EngineError, match=what):
        generate(small, str(tmp_path / "s.zarr"), scheduler=scheduler)
    assert not (tmp_path / "s.zarr").exists()


# what follows a task


def begun(folder: str, number: int) -> int:
    """A task that tells that it has begun."""
    Path(folder, f"{number}").touch()
    return number


def after_the_next(folder: str, number: int) -> int:
    """Of the first task, ends when the second has begun."""
    end = time.monotonic() + 30
    while number == 0 and not Path(folder, "1").exists():
        assert time.monotonic() < end, "the second task waits for the first"
        time.sleep(0.01)
    return number


@pytest.mark.parametrize("scheduler", ["threads", "cluster"])
def test_a_worker_computes_while_the_previous_result_is_written(tmp_path, scheduler, request):
    scheduler = request.getfixturevalue("cluster") if scheduler == "cluster" else scheduler
    task, then = partial(begun, str(tmp_path)), partial(after_the_next, str(tmp_path))
    with pool(scheduler, 1) as workers:
        results = dict(workers.overlapped(task, then, range(6)))
    assert results == {number: number for number in range(6)}


@pytest.mark.parametrize("scheduler", ["threads", "cluster"])
def test_tasks_of_a_worker_run_in_one_thread(scheduler, request):
    """Some solvers start a process for each thread."""
    scheduler = request.getfixturevalue("cluster") if scheduler == "cluster" else scheduler
    with pool(scheduler, 1) as workers:
        threads = dict(workers.overlapped(thread, same, range(8)))
    assert len(set(threads.values())) == 1


def thread(_: int) -> int:
    return threading.get_ident()


def same(value: int) -> int:
    return value


def test_tasks_wait_for_results_that_are_not_written():
    computed, most = [], 0

    def then(number: int) -> None:
        nonlocal most
        time.sleep(0.005)
        most = max(most, len(computed) - number)

    with pool("threads", 1) as workers:
        list(workers.overlapped(lambda i: computed.append(i) or i, then, range(40)))
    assert most <= 3


def faults_of_arrays(count: int) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        np.ones(100_000)  # 196 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_workers_of_dask_reuse_the_memory_that_they_free(cluster):
    """Dask sets MALLOC_TRIM_THRESHOLD_, by which glibc requests new pages for each array."""
    with pool(cluster, None) as workers:
        ((_, faults),) = workers.run(faults_of_arrays, [200])
    assert faults < 200 * 20


# a worker's death


def dies_once(argument: tuple[str, int]) -> int:
    """Kills its own process at the first attempt at task 3."""
    folder, number = argument
    try:
        if number == 3:
            os.close(os.open(f"{folder}/died", os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass
    return number


def dies(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.filterwarnings("ignore")  # of Dask, on workers that die
def test_a_workers_death_costs_its_tasks_only(tmp_path):
    with pool("processes", 2) as workers:
        results = dict(workers.run(dies_once, [(str(tmp_path), i) for i in range(8)]))
    assert sorted(results.values()) == list(range(8))
    assert (tmp_path / "died").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_task_that_kills_every_worker_is_named():
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        pool("processes", 1) as workers,
        pytest.raises(WorkerLostError, match="1: every worker that tried it has died"),
    ):
        list(workers.run(dies, [1]))


# how many tasks wait


def test_few_tasks_wait_however_many_there_are():
    asked, most = [], 0

    def arguments():
        for i in range(2000):
            asked.append(i)
            yield i

    with pool("threads", 2) as workers:
        for done, _ in enumerate(workers.run(lambda i: i, arguments()), 1):
            most = max(most, len(asked) - done)
    assert len(asked) == 2000
    assert most <= 66


def test_memory_does_not_grow_with_the_dataset(small, tmp_path):
    """The process holds some shards, whatever the number of all."""
    peaks = []
    for samples in (64, 1024):
        recipe = small.with_overrides(
            {"samples": samples, "shard": 16, "resolution": 4096, "solver.resolution": 4096}
        )
        code = (
            "import sys\n"
            "from pdegen.generation.generate import generate\n"
            "from pdegen.recipe import Recipe\n"
            "recipe = Recipe.model_validate_json(sys.argv[1])\n"
            "generate(recipe, sys.argv[2], workers=2)\n"
            "status = open('/proc/self/status').read()\n"  # getrusage counts the parent's peak
            "print(status.split('VmHWM:')[1].split()[0])\n"
        )
        place = str(tmp_path / f"{samples}.zarr")
        done = subprocess.run(
            [sys.executable, "-c", code, recipe.model_dump_json(), place],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        peaks.append(int(done.stdout) / 1024)
    whole = 1024 * 2 * 4096 * 4 / 2**20  # 32 MiB
    assert peaks[1] - peaks[0] < whole / 2


# SLURM and MPI


def test_the_job_script_says_what_is_asked_for():
    script = slurm_script()
    assert "#SBATCH --cpus-per-task=1" in script
    assert "distributed.cli.dask_worker" in script
    dask.config.config.pop("jobqueue")  # as before the first import of dask-jobqueue
    with dask.config.set({"jobqueue.slurm.queue": "long", "jobqueue.slurm.walltime": "12:00:00"}):
        script = slurm_script()
    assert "#SBATCH -p long" in script
    assert "#SBATCH -t 12:00:00" in script
    assert "jobqueue" not in dask.config.config
    assert "-t 12:00:00" not in slurm_script()


@pytest.mark.filterwarnings("ignore")  # of Dask, on workers that end with their job
def test_jobs_of_slurm_make_the_same_bytes(small, finished, tmp_path, monkeypatch):
    """A queue that starts each job script at once."""
    for name, script in {
        "sbatch": 'cp "$1" job.$$; echo "Submitted batch job $$"; setsid bash job.$$ '
        f">/dev/null 2>&1 & echo $! >> {tmp_path}/jobs",  # the script is gone when this ends
        "scancel": f"while read pid; do kill -- -$pid; done < {tmp_path}/jobs",
    }.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    store = generate(small, str(tmp_path / "s.zarr"), scheduler="slurm", workers=1)
    assert objects_of(store) == objects_of(finished)
    assert (tmp_path / "jobs").read_text().count("\n") == 1


def mpirun(processes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(processes),
         str(BIN / "pdegen"), *arguments],
        capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.usefixtures("mpi")
def test_mpi_makes_the_same_bytes(finished, small, tmp_path):
    url = str(tmp_path / "s.zarr")
    overrides = [f"--set={key}={value}" for key, value in SMALL.items()]
    done = mpirun(3, "generate", "burgers-quick", "--out", url, "--scheduler", "mpi", *overrides)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == url
    assert objects_of(url) == objects_of(finished)


@pytest.mark.usefixtures("mpi")
def test_mpi_needs_three_processes(tmp_path):
    done = mpirun(
        2, "generate", "burgers-quick", "--out", str(tmp_path / "s.zarr"), "--scheduler", "mpi"
    )
    assert done.returncode == 2
    assert done.stderr.count("needs at least 3 processes") == 1
    assert not (tmp_path / "s.zarr").exists()


def pools_in_a_task(_):
    from threadpoolctl import threadpool_info

    from pdegen.equations.darcy import finite_volume

    finite_volume.scipy.sparse.linalg.splu  # noqa: B018 - brings the pool of SciPy
    return [library["num_threads"] for library in threadpool_info()]


def test_libraries_that_a_task_imports_run_on_one_thread():
    code = (
        "from pdegen.generation.pools import pool\n"
        "from tests.pdegen.test_engines import pools_in_a_task\n"
        "with pool('threads', 1) as threads:\n"
        "    print(list(threads.run(pools_in_a_task, [0])))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "OPENBLAS_NUM_THREADS": "2"}, check=True)  # fmt: skip
    assert done.stdout == "[(0, [1, 1])]\n"  # of NumPy, and of SciPy


def environment(name: str) -> str | None:
    return os.environ.get(name)


def origin(_: int) -> str:
    return pdegen.__file__


def test_worker_processes_have_the_environment_and_modules_of_this_one(monkeypatch):
    for value in ("first", "second"):  # the server that forks them is as old as the first
        monkeypatch.setenv("PDEGEN_TEST", value)
        with pool("processes", 1) as workers:
            assert dict(workers.run(environment, ["PDEGEN_TEST"])) == {"PDEGEN_TEST": value}
            assert dict(workers.run(origin, [0])) == {0: pdegen.__file__}


def test_jobs_that_end_are_replaced(monkeypatch):
    """Their number is asked for again and again, here each 10 milliseconds."""
    monkeypatch.setattr(pools, "_RENEWAL", 10)
    asked = list[int]()
    loop = IOLoop(make_current=False)
    pools.keep_jobs(SimpleNamespace(loop=loop, scale=lambda jobs: asked.append(jobs)), 3)
    loop.call_later(1.0, loop.stop)
    loop.start()
    loop.close()
    assert len(asked) > 3
    assert {*asked} == {3}
