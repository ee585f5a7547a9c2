"""How commands run many trainings: where, beside each other, and from where they go on."""

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
from pipelines.cli.stores import generated
from pipelines.cli.terminal import note, redraw, say

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    import torch

    from operators.training.fit import Epoch
    from pipelines.config.benchmark import Benchmark
    from pipelines.studies.benchmark import BenchmarkRun
    from pipelines.studies.runner import Study


def command_line() -> str:
    """The command line that runs this study from its start."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["pdegen", *words])


@dataclass(frozen=True)
class Launch:
    """How a study is run, and whether an earlier one is continued or replaced."""

    workers: int
    device: str
    resume: bool
    overwrite: bool
    scheduler: str = "processes"

    def __post_init__(self) -> None:
        from pdegen.generation.engines import check

        check(self.scheduler)
        if self.scheduler in ("threads", "mpi"):
            raise SchemaError(
                f"--scheduler {self.scheduler} is of pdegen generate: trainings are for processes, "
                "slurm, or the address of a Dask scheduler"
            )
        if self.resume and self.overwrite:
            raise SchemaError("--resume and --overwrite exclude each other")

    @property
    def torch_device(self) -> "torch.device":
        from pipelines.runs.checks import check_device

        return check_device(self.device)

    def study(
        self, study: "Study[Any]", what: str, begun: Callable[[], None] = lambda: None
    ) -> None:
        """Run a study to its end; `begun` is called once nothing was refused."""
        from operators.training.fit import Stopped

        report, started = Reporter(what, every=0), time.monotonic()

        def on_epoch(epoch: "Epoch") -> None:
            if sys.stderr.isatty():
                redraw(f"epoch {epoch.epoch}: {epoch.score:.3e}")

        def progress(said: str, done: int, total: int) -> None:
            report(done, total, time.monotonic() - started, f", {said}")

        with Interrupts() as interrupts:
            try:
                way = {"resume": self.resume, "overwrite": self.overwrite}
                way |= {"workers": self.workers, "scheduler": self.scheduler}
                heard = {"progress": progress, "on_epoch": on_epoch, "stop": interrupts.asked}
                study.run(self.torch_device, **way, **heard, begun=begun)
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
        """A benchmark on given stores or those of its recipes, which are made; `wanted` are
        operators that `--only` names, and `seed` the only one to train with."""
        from pipelines.runs.data import Source
        from pipelines.runs.stream import check_data
        from pipelines.studies.benchmark import BenchmarkRun, check_place
        from pipelines.studies.cases import check_cases

        device = self.torch_device
        check_place(benchmark.name, folder, self.resume, self.overwrite)
        experiments = {name: dataset.load() for name, dataset in benchmark.datasets.items()}
        absent = [name for name in experiments if name not in given]
        dims = {
            name: check_data(one, device)
            if name in absent
            else Source(given[name], one).stored("test").dim
            for name, one in experiments.items()
        }
        check_cases(benchmark, dims, wanted)
        recipes = {name: experiments[name].data.load_recipe() for name in absent}
        distinct = {recipe.fingerprint: recipe for recipe in recipes.values()}
        made = {fingerprint: generated(recipe) for fingerprint, recipe in distinct.items()}
        stores = {**given, **{name: made[recipe.fingerprint] for name, recipe in recipes.items()}}
        if self.scheduler != "processes":  # whose workers may be in other folders
            folder = folder.absolute()
            stores = {k: v if "://" in v else os.path.abspath(v) for k, v in stores.items()}
        return BenchmarkRun(benchmark, stores, folder, seed)

    def benchmark(
        self, run: "BenchmarkRun", write: "Callable[[BenchmarkRun, torch.device, str], Path]"
    ) -> None:
        """Train, evaluate and report; of one seed, print the rows in place of a report."""
        from pipelines.studies.runner import Execution

        def begun() -> None:
            for name, dataset in run.benchmark.datasets.items():
                note(f"{name}: {dataset.load().mapped(run.stores[name])}")

        self.study(run, f"benchmark {run.benchmark.name}", begun)
        if run.seed is None:
            with Execution(self.torch_device).wait_and_hold(run.folder):
                say(write(run, self.torch_device, command_line()))
        for row in run.rows() if run.seed is not None else ():
            say(f"{row.dataset}, {row.operator}, seed {row.seed}: {row.failed or number(row.mean)}")
