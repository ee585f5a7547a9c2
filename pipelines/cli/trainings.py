"""Launch of studies and benchmarks from the command line."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdegen.schema import SchemaError
from pipelines.cli.common import Interrupted, Interrupts, Reporter, number
from pipelines.cli.stores import generate_default
from pipelines.cli.terminal import note, redraw, say

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    import torch

    from operators.training.fit import Epoch
    from pipelines.config.benchmark import Benchmark
    from pipelines.studies.benchmark import BenchmarkRun
    from pipelines.studies.runner import Study


def command_line() -> str:
    """The command line that repeats this study from the beginning."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["pdegen", *words])


@dataclass(frozen=True)
class Launch:
    """Options of a study: workers, device and scheduler, and whether to resume or overwrite it."""

    workers: int
    device: str
    resume: bool
    overwrite: bool
    scheduler: str = "processes"

    def __post_init__(self) -> None:
        from pdegen.generation.pools import check

        check(self.scheduler)
        if self.scheduler in ("threads", "dask", "mpi"):
            raise SchemaError(
                f"--scheduler {self.scheduler} is for pdegen generate: trainings run on processes, "
                "slurm, or the address of a Dask scheduler"
            )
        if self.resume and self.overwrite:
            raise SchemaError("--resume and --overwrite exclude each other")

    @property
    def torch_device(self) -> "torch.device":
        from pipelines.runs.checks import check_device

        return check_device(self.device)

    def study(
        self, study: "Study[Any]", title: str, begun: Callable[[], None] = lambda: None
    ) -> None:
        """Run a study until it is finished. `begun` is called after all checks have passed."""
        from operators.training.fit import Stopped
        from pipelines.studies.runner import sharing

        if self.scheduler == "processes" and (shared := sharing(self.workers, self.torch_device)):
            note(shared)
        report, started = Reporter(title, every=0), time.monotonic()

        def on_epoch(epoch: "Epoch") -> None:
            if sys.stderr.isatty():
                redraw(f"epoch {epoch.epoch}: {epoch.score:.3e}")

        def progress(line: str, done: int, total: int) -> None:
            report(done, total, time.monotonic() - started, f", {line}")

        with Interrupts() as interrupts:
            try:
                options = {"resume": self.resume, "overwrite": self.overwrite}
                options |= {"workers": self.workers, "scheduler": self.scheduler}
                callbacks = {
                    "progress": progress,
                    "on_epoch": on_epoch,
                    "stop": interrupts.requested,
                }
                study.run(self.torch_device, **options, **callbacks, begun=begun)
            except Stopped as stopped:
                raise Interrupted(
                    f"{stopped}; finished rows are kept: continue with --resume"
                ) from None

    def prepared(
        self,
        benchmark: "Benchmark",
        folder: Path,
        given: Mapping[str, str],
        wanted: Collection[str] = (),
        seed: int | None = None,
    ) -> "BenchmarkRun":
        """Check a benchmark and generate the stores that are not given.

        Args:
            given: URLs of stores, by dataset.
            wanted: Labels of the operators that `--only` names.
            seed: The only seed to train with; None for all seeds.
        """
        from pipelines.runs.data import Source, check_data
        from pipelines.studies.benchmark import BenchmarkRun, check_cases, check_place

        device = self.torch_device
        check_place(benchmark.name, folder, self.resume, self.overwrite)
        experiments = {name: dataset.load() for name, dataset in benchmark.datasets.items()}
        absent = [name for name in experiments if name not in given]
        dims = {
            name: check_data(experiment, device)
            if name in absent
            else Source(given[name], experiment).stored("test").dim
            for name, experiment in experiments.items()
        }
        check_cases(benchmark, dims, wanted)
        recipes = {name: experiments[name].data.load_recipe() for name in absent}
        distinct = {recipe.fingerprint: recipe for recipe in recipes.values()}
        urls = {fingerprint: generate_default(recipe) for fingerprint, recipe in distinct.items()}
        stores = {**given, **{name: urls[recipe.fingerprint] for name, recipe in recipes.items()}}
        if self.scheduler != "processes":  # workers elsewhere may have another current folder
            folder = folder.absolute()
            stores = {
                name: url if "://" in url else os.path.abspath(url) for name, url in stores.items()
            }
        return BenchmarkRun(benchmark, stores, folder, seed)

    def benchmark(
        self, run: "BenchmarkRun", write: "Callable[[BenchmarkRun, torch.device, str], Path]"
    ) -> None:
        """Run the benchmark and write the report. With a single seed, print its rows instead.

        If the benchmark is interrupted, the report has the finished rows and names the others.
        """
        from pipelines.studies.runner import Execution

        def begun() -> None:
            for name, dataset in run.benchmark.datasets.items():
                note(f"{name}: {dataset.load().mapped(run.stores[name])}")

        def report() -> None:
            with Execution(self.torch_device).wait_and_hold(run.folder):
                say(write(run, self.torch_device, command_line()))

        try:
            self.study(run, f"benchmark {run.benchmark.name}", begun)
        except Interrupted:
            if run.seed is None and run.rows():
                report()
            raise
        if run.seed is None:
            report()
        for row in run.rows() if run.seed is not None else ():
            say(f"{row.dataset}, {row.operator}, seed {row.seed}: {row.failed or number(row.mean)}")
