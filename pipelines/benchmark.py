"""Operators x datasets x seeds at one protocol: every run is kept, and is one row of a table."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import BaseModel, Field, ValidationError, model_validator

from operators.checkpoint import load_checkpoint
from operators.evaluate import scores
from operators.norms import relative_l2
from operators.train import Epoch, TrainingError
from operators.transforms import Predictor
from pdegen.objects import Objects
from pdegen.schema import Count, SchemaError, Strict, near, read_toml
from pdegen.store import open_sealed
from pipelines.cost import step_cost
from pipelines.data import Source
from pipelines.experiment import Experiment, load_experiment
from pipelines.models import build_operator
from pipelines.profile import Profile
from pipelines.registry import ModelSpec
from pipelines.run import RunError, checked_operator, evaluate_run, provenance, train

Overrides = Annotated[dict[str, Any], Field(default_factory=dict)]
_Points = Annotated[int, Field(strict=False)]  # keys of TOML are strings
_DECLARED = "benchmark.json"
_NO_MEMORY = (MemoryError, torch.OutOfMemoryError)
_NO_MEMORY_WORDS = "not enough memory"


class Dataset(Strict):
    """What all operators are trained and evaluated on, and how.

    Args:
        experiment, overrides: Data, training, normalisation and resolutions; not the model.
    """

    experiment: str
    overrides: Overrides

    def load(self) -> Experiment:
        return load_experiment(self.experiment).with_overrides(self.overrides)


class Entry(Strict):
    """An operator of a benchmark.

    Args:
        model: On every dataset of a dimension that it is for.
        models: On each dataset that is named, where they differ.
        overrides: Of the experiments, where this operator's training must differ; reported.
        published: Mean relative L² errors that were published, by dataset.
        published_grids: The same on other grids than that of training, by dataset and points.
        differs: What differs from the published setting.
    """

    model: ModelSpec | None = None
    models: Annotated[dict[str, ModelSpec], Field(default_factory=dict)]
    overrides: Overrides
    published: Annotated[dict[str, float], Field(default_factory=dict)]
    published_grids: Annotated[dict[str, dict[_Points, float]], Field(default_factory=dict)]
    differs: str = ""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.model is None) == (not self.models):
            raise ValueError("an operator has either a model, or models by dataset")
        return self

    def on(self, datasets: list[str]) -> Entry:
        """What it says of some datasets."""
        return self.model_copy(
            update={
                name: {k: v for k, v in getattr(self, name).items() if k in datasets}
                for name in ("models", "published", "published_grids")
            }
        )


class Quick(Strict):
    """A small version, for two cores.

    Args:
        datasets: Which of the datasets.
        overrides: Of their experiments.
        operators: In place of those of the table; without them, those.
    """

    datasets: list[str]
    overrides: Overrides
    operators: Annotated[dict[str, Entry], Field(default_factory=dict)]


class Benchmark(Strict):
    """A table.

    Args:
        name, summary: For people.
        differs: What differs from everything that is published beside it.
        seeds: Trainings of each operator on each dataset, with seeds 0, 1, ...
        search: Key of the experiments -> values to try with seed 0; each operator gets, on each
            dataset, the one with the smallest validation error.
        datasets, operators: By the names that the table shows.
        quick: The small version, where there is one.
    """

    name: str
    summary: str
    differs: str = ""
    seeds: Count = 1
    search: Annotated[dict[str, list[Any]], Field(default_factory=dict)]
    datasets: Annotated[dict[str, Dataset], Field(min_length=1)]
    operators: Annotated[dict[str, Entry], Field(min_length=1)]
    quick: Quick | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        _check_operators(self.operators, self.datasets)
        _check_slugs(self.datasets, "datasets")
        if self.quick is not None:
            for name in set(self.quick.datasets) - self.datasets.keys():
                raise ValueError(f"quick: no dataset {name!r}: {near(name, list(self.datasets))}")
            _check_operators(self.quick.operators, self.datasets)
        if len(self.search) > 1:
            raise ValueError(f"search is over one key, got {', '.join(self.search)}")
        return self

    def check(self) -> None:
        """Raise SchemaError where a dataset, or what an operator overrides of it, cannot be."""
        for case in self.cases():
            for key in self.operators[case.operator].overrides:
                if key.startswith("model."):
                    raise SchemaError(
                        f"{case.operator}: {key} is said in its model, not overridden"
                    )
        for name, dataset in self.datasets.items():
            experiment = dataset.load()
            if self.search and experiment.training.protocol == "published":
                raise SchemaError(
                    f"benchmark {self.name}: a search is by the validation error, the protocol "
                    "published has none"
                )
            of_cases = (
                self.operators[c.operator].overrides for c in self.cases() if c.dataset == name
            )
            searched = ({key: v} for key, values in self.search.items() for v in values)
            for overrides in [own for own in (*of_cases, *searched) if own]:
                experiment.with_overrides(overrides)

    def cases(self) -> list[Case]:
        """Datasets with the operators that are declared for them."""
        return [
            Case(dataset, label)
            for dataset in self.datasets
            for label, entry in self.operators.items()
            if entry.model is not None or dataset in entry.models
        ]

    @property
    def grids(self) -> bool:
        """Whether something is evaluated on other grids than that of training."""
        return any(len(dataset.load().resolutions) > 1 for dataset in self.datasets.values())

    def model(self, case: Case) -> Any:
        """The declared operator of a case."""
        entry = self.operators[case.operator]
        return entry.model or entry.models[case.dataset]

    def experiment(self, case: Case, seed: int, chosen: Mapping[str, Any]) -> Experiment:
        """What is trained.

        Args:
            case: Dataset and operator.
            seed: Of the training.
            chosen: What a search found, by key.

        Raises:
            SchemaError: On an unknown key or an impossible value.
        """
        experiment = self.datasets[case.dataset].load()
        overrides = {**self.operators[case.operator].overrides, **chosen}
        if overrides:
            experiment = experiment.with_overrides(overrides)
        return experiment.model_copy(
            update={
                "name": f"{self.name}-{case.dataset}-{slug(case.operator)}",
                "summary": f"{case.operator} on {case.dataset}",
                "model": self.model(case),
                "training": experiment.training.model_copy(update={"seed": seed}),
            }
        )

    def only(self, operators: list[str], datasets: list[str]) -> Benchmark:
        """With some of the operators and datasets; an empty list stands for all.

        Raises:
            SchemaError: If one is unknown.
        """
        parts: dict[str, tuple[list[str], dict[str, Any]]] = {
            "operator": (operators, self.operators),
            "dataset": (datasets, self.datasets),
        }
        update = {}
        for what, (wanted, there) in parts.items():
            for label in wanted:
                if label not in there:
                    raise SchemaError(
                        f"benchmark {self.name} has no {what} {label!r}: {near(label, list(there))}"
                    )
            update[f"{what}s"] = {label: there[label] for label in wanted or there}
        if datasets:
            update["quick"] = None
            update["operators"] = {
                label: entry.on(datasets) for label, entry in update["operators"].items()
                if entry.model is not None or entry.models.keys() & set(datasets)
            }  # fmt: skip
        return self.model_copy(update=update)

    def quickly(self) -> Benchmark:
        """The small version, under a name of its own; nothing published compares with it.

        Raises:
            SchemaError: If there is none.
        """
        if self.quick is None:
            raise SchemaError(f"benchmark {self.name} has no quick version")
        operators = {
            label: entry.model_copy(update={"published": {}, "published_grids": {}, "differs": ""})
            for label, entry in (self.quick.operators or self.operators).items()
        }
        small = self.model_copy(
            update={"name": f"{self.name}-quick", "differs": "", "operators": operators}
        )
        return small.only([], self.quick.datasets)._with(self.quick.overrides)

    def stores(self, texts: list[str]) -> dict[str, str]:
        """Stores by dataset, from DATASET=STORE.

        Raises:
            SchemaError: If a dataset is unknown.
        """
        found = {}
        for text in texts:
            dataset, separator, store = text.partition("=")
            if not separator or not store:
                raise SchemaError(f"--data is DATASET=STORE, got {text!r}")
            if dataset not in self.datasets:
                raise SchemaError(
                    f"benchmark {self.name} has no dataset {dataset!r}: "
                    f"{near(dataset, list(self.datasets))}"
                )
            found[dataset] = store
        return found

    def with_overrides(self, overrides: Mapping[str, Any]) -> Benchmark:
        """With other values in the experiments of all datasets, and so for all operators.

        Raises:
            SchemaError: On an unknown key, an impossible value, or what the benchmark itself says:
                operators and seeds.
        """
        if not overrides:
            return self
        experiment = next(iter(self.datasets.values())).load()
        keys = {experiment.full_key(key): value for key, value in overrides.items()}
        for key in keys:
            if key.split(".")[0] == "model" or key == "training.seed":
                raise SchemaError(f"{key} cannot be set: operators and seeds are the benchmark's")
        note = ", ".join(f"{key} = {value}" for key, value in keys.items())
        said = " ".join(filter(None, [self.differs, f"Set by the command: {note}."]))
        return self._with(keys).model_copy(update={"differs": said})

    def _with(self, overrides: Mapping[str, Any]) -> Benchmark:
        datasets = {
            name: dataset.model_copy(update={"overrides": {**dataset.overrides, **overrides}})
            for name, dataset in self.datasets.items()
        }
        operators = {
            label: entry.model_copy(
                update={"overrides": {k: v for k, v in entry.overrides.items()
                                      if k not in overrides}}
            )
            for label, entry in self.operators.items()
        }  # fmt: skip
        changed = self.model_copy(update={"datasets": datasets, "operators": operators})
        changed.check()
        return changed


def benchmark_folder() -> Path:
    """The folder of the benchmarks that come with the project."""
    return Path(__file__).parent / "benchmarks"


def benchmark_names() -> list[str]:
    """The benchmarks that come with the project."""
    return sorted(path.stem for path in benchmark_folder().glob("*.toml"))


def load_benchmark(name: str) -> Benchmark | Profile:
    """A benchmark by its name, or from a TOML file; one with `points` is a profile.

    Raises:
        SchemaError: On an unknown name (naming the near ones) or an impossible declaration.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = benchmark_folder() / f"{name}.toml"
        if name not in benchmark_names():
            raise SchemaError(f"unknown benchmark {name!r}: {near(name, benchmark_names())}")
    if "points" in read_toml(path):
        return Profile.load(path)
    benchmark = Benchmark.load(path)
    benchmark.check()
    return benchmark


def slug(label: str) -> str:
    """A name as part of a path.

    >>> slug("FNO++ (no BN)")
    'fno-plus-plus-no-bn'
    """
    plain = unicodedata.normalize("NFKD", label.lower().replace("+", "-plus-"))
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")


def _check_operators(operators: Mapping[str, Entry], datasets: Mapping[str, Dataset]) -> None:
    for label, entry in operators.items():
        named = {*entry.models, *entry.published, *entry.published_grids}
        for name in named - datasets.keys():
            raise ValueError(f"{label}: no dataset {name!r}: {near(name, list(datasets))}")
    _check_slugs(operators, "operators")


def _check_slugs(names: Collection[str], what: str) -> None:
    slugs = [slug(name) for name in names]
    for name in {name for name in slugs if slugs.count(name) > 1 or not name}:
        raise ValueError(f"names of {what} differ in more than signs, got {name!r} twice")


class Row(BaseModel):
    """What came of one training.

    Args:
        made_from: Digest of what it was computed from; another one makes it stale.
        dataset, operator, seed: Which.
        chosen: What the search found.
        parameters: Trainable real numbers.
        epoch: The one that is reported.
        best, best_epoch: Mean error of the epoch that is best on the test samples, where the
            protocol watches them.
        errors: Relative L² error of each test sample, on the training grid.
        means: Mean of them on every grid, where the operator can.
        refused: Why it cannot, by grid.
        training_seconds: Evaluations on the selection samples included.
        step_seconds, step_bytes, step_flops: `pipelines.cost.Cost`.
        failed: Why there are no errors; empty where there are.
        provenance: Software and hardware.
    """

    made_from: str
    dataset: str
    operator: str
    seed: int
    chosen: dict[str, Any] = {}
    parameters: int = 0
    epoch: int = 0
    best: float | None = None
    best_epoch: int = 0
    errors: list[float] = []
    means: dict[int, float] = {}
    refused: dict[int, str] = {}
    training_seconds: float = 0.0
    step_seconds: float = 0.0
    step_bytes: int = 0
    step_flops: int = 0
    failed: str = ""
    provenance: dict[str, Any] = {}

    @property
    def mean(self) -> float:
        return sum(self.errors) / len(self.errors)

    @property
    def again(self) -> bool:
        """Whether it is to be made again when a benchmark is resumed: for want of memory."""
        return self.failed.startswith(_NO_MEMORY_WORDS)


@dataclass(frozen=True)
class Case:
    """One operator on one dataset."""

    dataset: str
    operator: str


@dataclass(frozen=True)
class BenchmarkRun:
    """A benchmark in its folder: `runs/DATASET/OPERATOR/seed-0`, ..., each an ordinary run folder,
    and `rows/`, where every finished training is kept.

    Args:
        benchmark: What.
        stores: A store for each dataset.
        folder: Where rows, runs and the report are kept.
    """

    benchmark: Benchmark
    stores: Mapping[str, str]
    folder: Path

    @cached_property
    def cases(self) -> list[Case]:
        """Operators on the datasets that they are for."""
        return [
            case
            for case in self.benchmark.cases()
            if self.benchmark.operators[case.operator].models
            or self._dim(case.dataset) in self.benchmark.model(case).dims()
        ]

    def _dim(self, dataset: str) -> int:
        return self.source(dataset).streamed("test").x.shape[-1]

    def source(self, dataset: str) -> Source:
        """The data of a dataset."""
        return Source(self.stores[dataset], self.benchmark.datasets[dataset].load())

    def run(
        self,
        device: torch.device,
        *,
        resume: bool = False,
        overwrite: bool = False,
        progress: Callable[[str, int, int], None] = lambda what, done, total: None,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train and evaluate what is not finished yet; with `overwrite` all, from the start.

        A training that diverges or does not fit into memory is a row that says so.

        Raises:
            SchemaError: If an operator cannot act on a dataset; before anything is written.
            DataError: If a store cannot be read as an experiment asks.
            RunError: If the folder holds something else, or is there and not to be resumed.
            Stopped: See `operators.train.fit`; what was stopped goes on with `resume`.
        """
        for case in self.cases:
            self._check(case)
        self._claim(resume, overwrite)
        total, done = len(self.cases) * self.benchmark.seeds, 0
        for seed in range(self.benchmark.seeds):
            for case in self.cases:
                row = self._kept(case, seed)
                if row is None or row.again:
                    row = self._made(case, seed, device, on_epoch, stop)
                    self._rows.write(
                        self._place(case, seed), row.model_dump_json(indent=1).encode()
                    )
                done += 1
                outcome = row.failed or f"{row.mean:.3e}"
                progress(f"{case.operator} on {case.dataset}: {outcome}", done, total)

    def rows(self) -> list[Row]:
        """The rows that are finished and not stale, in the order of the declaration."""
        found = (
            self._kept(case, seed) for case in self.cases for seed in range(self.benchmark.seeds)
        )
        return [row for row in found if row is not None]

    def run_folder(self, case: Case, name: str) -> Path:
        """The run folder of one training."""
        return self.folder / "runs" / slug(case.dataset) / slug(case.operator) / name

    def folder_of(self, row: Row) -> Path:
        """The run folder of a row."""
        case = Case(row.dataset, row.operator)
        return self.run_folder(case, self._run_name(row.seed, row.chosen))

    # one row

    @property
    def _rows(self) -> Objects:
        return Objects(str(self.folder / "rows"))

    def _place(self, case: Case, seed: int) -> str:
        return f"{slug(case.dataset)}--{slug(case.operator)}--seed-{seed}.json"

    def _made_from(self, case: Case, seed: int) -> str:
        content = {
            "experiment": self.benchmark.experiment(case, seed, {}).model_dump(mode="json"),
            "search": self.benchmark.search,
            "content": self._content(case),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _content(self, case: Case) -> str:
        return open_sealed(self.stores[case.dataset]).attributes["content"]

    def _kept(self, case: Case, seed: int) -> Row | None:
        path = self.folder / "rows" / self._place(case, seed)
        try:
            row = Row.model_validate_json(path.read_text("utf-8"))
        except (FileNotFoundError, ValidationError):
            return None
        return row if row.made_from == self._made_from(case, seed) else None

    def _check(self, case: Case) -> None:
        """Raise SchemaError where an operator cannot be trained on a dataset, and DataError where
        the store has not what the experiment asks for."""
        experiment = self.benchmark.experiment(case, 0, {})
        source = Source(self.stores[case.dataset], experiment)
        for resolution in experiment.resolutions:
            source.streamed("test", resolution)
        try:
            checked_operator(experiment, source.streamed("train"))
        except SchemaError as error:
            raise SchemaError(f"{case.operator} on {case.dataset}: {error}") from error

    def _made(
        self, case: Case, seed: int, device: torch.device,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> Row:  # fmt: skip
        row = Row(
            made_from=self._made_from(case, seed), dataset=case.dataset, operator=case.operator,
            seed=seed, provenance=provenance(device),
        )  # fmt: skip
        try:
            row.chosen = self._searched(case, device, on_epoch, stop)
            experiment = self.benchmark.experiment(case, seed, row.chosen)
            folder = self.run_folder(case, self._run_name(seed, row.chosen))
            self._trained(experiment, case, folder, device, on_epoch, stop)
            self._evaluated(row, experiment, folder, device)
            self._measured(row, experiment, folder, device)
        except TrainingError as error:
            row.failed = str(error)
        except _NO_MEMORY as error:
            row.failed = f"{_NO_MEMORY_WORDS}: {str(error).splitlines()[0]}"
        return row

    def _run_name(self, seed: int, chosen: Mapping[str, Any]) -> str:
        words = [f"{key.rsplit('.', 1)[-1]}-{value}" for key, value in chosen.items()]
        return "-".join([f"seed-{seed}", *words])

    def _searched(
        self, case: Case, device: torch.device,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> dict[str, Any]:  # fmt: skip
        """The value with the smallest validation error; those that diverge are out."""
        best: dict[str, Any] = {}
        smallest, failure = float("inf"), None
        for key, values in self.benchmark.search.items():
            for value in values:
                chosen = {key: value}
                experiment = self.benchmark.experiment(case, 0, chosen)
                folder = self.run_folder(case, self._run_name(0, chosen))
                try:
                    history = self._trained(experiment, case, folder, device, on_epoch, stop)
                except TrainingError as error:
                    failure = error
                    continue
                score = min(epoch["score"] for epoch in history)
                if score < smallest:
                    best, smallest = chosen, score
            if not best and failure is not None:
                raise failure
        return best

    def _trained(
        self, experiment: Experiment, case: Case, folder: Path, device: torch.device,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> list[dict[str, Any]]:  # fmt: skip
        """History of a training; read where it is finished."""
        done, made_of = folder / "done", _digest(experiment, self._content(case))
        if not done.exists():
            store, resume = self.stores[case.dataset], (folder / "state.pt").exists()
            try:
                train(experiment, store, folder, device, resume=resume, overwrite=not resume,
                      on_epoch=on_epoch, stop=stop)  # fmt: skip
            except RunError:  # of another declaration: this benchmark was changed since
                shutil.rmtree(folder)
                train(experiment, store, folder, device, on_epoch=on_epoch, stop=stop)
            done.write_text(made_of, "utf-8")
        elif done.read_text("utf-8") != made_of:
            shutil.rmtree(folder)
            return self._trained(experiment, case, folder, device, on_epoch, stop)
        lines = (folder / "history.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _evaluated(
        self, row: Row, experiment: Experiment, folder: Path, device: torch.device
    ) -> None:
        """Fill a row from a finished training."""
        store, grid = self.stores[row.dataset], experiment.data.resolution
        one = experiment.model_copy(update={"resolutions": (grid,)})
        summary = evaluate_run(one, store, folder, device)
        main, *others = summary["results"]
        row.errors, row.epoch = main["errors"], main["epoch"]
        for other in others:  # of the protocol "published"
            row.best, row.best_epoch = other["mean"], other["epoch"]
        row.means = {grid: main["mean"]}
        row.parameters = summary["parameters"]
        row.training_seconds = summary["training_seconds"]
        predictor, source = self._predictor(experiment, folder, device), Source(store, experiment)
        for resolution in experiment.resolutions:
            if resolution == grid:
                continue
            pairs = source.tested("test", device, resolution)
            try:
                row.means[resolution] = float(scores(predictor, pairs).mean())
            except ValueError as error:  # such as a fixed grid of sensors
                row.refused[resolution] = str(error).splitlines()[0]
            except _NO_MEMORY:
                row.refused[resolution] = _NO_MEMORY_WORDS

    def _predictor(self, experiment: Experiment, folder: Path, device: torch.device) -> Predictor:
        checkpoint = folder / f"{experiment.training.reported[0]}.safetensors"
        return load_checkpoint(checkpoint, build_operator)[0].to(device)

    def _measured(
        self, row: Row, experiment: Experiment, folder: Path, device: torch.device
    ) -> None:
        """Fill the costs of a row in; they stay 0 where memory is short of measuring them."""
        settings = experiment.training.settings()
        predictor = self._predictor(experiment, folder, device)
        pairs = Source(self.stores[row.dataset], experiment).training(device)
        a, u = next(pairs.parts(settings.batch))
        try:
            cost = step_cost(
                predictor, lambda: settings.loss(predictor(a, pairs.x, pairs.y), u, a), device
            )
        except _NO_MEMORY:
            return
        row.step_seconds, row.step_bytes, row.step_flops = (
            cost.seconds, cost.peak_bytes, cost.flops,
        )  # fmt: skip

    def _claim(self, resume: bool, overwrite: bool) -> None:
        check_place(self.benchmark.name, self.folder, resume, overwrite)
        if overwrite and self.folder.exists():
            shutil.rmtree(self.folder)
        content = {**self.benchmark.model_dump(mode="json"), "stores": dict(self.stores)}
        Objects(str(self.folder)).write(_DECLARED, json.dumps(content, indent=2).encode())


def check_place(name: str, folder: Path, resume: bool, overwrite: bool) -> None:
    """Raise RunError where a folder is in the way of a benchmark.

    Args:
        name: Of the benchmark.
        folder: Where it is to be kept.
        resume, overwrite: Whether one of that name may be continued, or replaced.
    """
    path = folder / _DECLARED
    if path.exists():
        there = json.loads(path.read_text("utf-8")).get("name")
        if there != name:
            raise RunError(f"{folder} holds the benchmark {there}: choose another --out")
        if not resume and not overwrite:
            raise RunError(f"{folder} holds a benchmark: use --resume or --overwrite")
    elif folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} exists and is no benchmark")


def _digest(experiment: Experiment, content: str) -> str:
    """Of what a training is made of: its declaration, and the content of a store."""
    return hashlib.sha256(f"{content}\n{experiment.model_dump_json()}".encode()).hexdigest()


def baseline(source: Source) -> float:
    """Mean relative L² test error of the mean training target, which does not look at the input."""
    train, test = source.streamed("train"), source.clean("test")
    total = sum(block.sum(dim=0, dtype=torch.float64) for block in train.targets)
    mean = torch.as_tensor(total) / len(train)
    return float(relative_l2(mean.expand_as(test.u), test.u.double()).mean())


def by_case(rows: list[Row]) -> Iterator[tuple[Case, list[Row]]]:
    """Rows of the same operator and dataset together."""
    for case in dict.fromkeys(Case(row.dataset, row.operator) for row in rows):
        yield case, [r for r in rows if (r.dataset, r.operator) == (case.dataset, case.operator)]
