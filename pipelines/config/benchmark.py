"""A benchmark file, which declares trainings of several operators on several datasets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from operators.registry import OPERATORS
from pdegen.domains import Box
from pdegen.plugins import plugin_of
from pdegen.schema import (
    Count,
    Name,
    Positive,
    SchemaError,
    Strict,
    flattened,
    is_name,
    near,
)
from pipelines.config.declared import MODELS, Model, ModelSpec
from pipelines.config.experiment import Experiment, Protocol, load_experiment, merged, without
from pipelines.config.shipped import check_slugs, file_of, read_benchmark, slug

_Keys = BeforeValidator(lambda keys: flattened(keys) if isinstance(keys, Mapping) else keys)
_Overrides = Annotated[dict[str, Any], _Keys]
Overrides = Annotated[_Overrides, Field(default_factory=dict)]
_Values = Annotated[list[Any], Field(min_length=1)]
Search = Annotated[dict[str, _Values], _Keys, Field(default_factory=dict)]
Coarser = Annotated[tuple[dict[str, Any], ...], Field(strict=False)]
Measure = Literal["l2", "block", "steps", "seen", "unseen", "l1", "points", "near", "deformed"]
TrainingFact = Literal["parameters", "gflop", "hours", "seconds", "epoch"]
StepCost = Literal["speed", "gflop", "memory", "allocated"]
FIGURES = ("published", "published_grids", "published_measures", "published_training")
Protocols = Annotated[tuple[Protocol, ...], Field(strict=False)]
_Points = Annotated[int, Field(strict=False)]  # keys in TOML are strings


class Extending(Strict):
    """A file that may extend another file.

    Args:
        extends: Name or TOML file of a benchmark over which this file is merged; empty in the
            merged declaration (`pipelines.config.benchmark`).
    """

    extends: Annotated[str, Field(exclude=True)] = ""

    @field_validator("extends")
    @classmethod
    def _merged(cls, extends: str) -> str:
        if extends:
            raise ValueError("is a key of files, which load_benchmark merges")
        return extends


class Budget(Strict):
    """Training of each operator with more and more epochs, until its validation error is flat.

    An operator is trained with the declared epochs, with twice as many, and so on. Each of these is
    a whole training from the beginning, because learning rates depend on the number of steps. The
    training with the smallest validation error is used.

    Args:
        flat: Epochs are not doubled again once doubling has reduced the validation error by less
            than this share, if the error is also below 0.95 times that of the best trivial
            predictor. [1]
        seconds: Largest processor time of all trainings of an operator on a dataset together (wall
            time on a GPU). Epochs are not doubled if the next training is expected to exceed it;
            the table says so. [s]
    """

    flat: Annotated[float, Field(gt=0, lt=1)] = 0.05
    seconds: Positive = 600.0


class Dataset(Strict):
    """A dataset of a benchmark, with the training and evaluation common to all operators.

    Args:
        experiment: Name of an experiment. Its data, training, normalisation and resolutions are
            used, but not its model.
        overrides: Values of keys of the experiment.
        measure: The error shown in the table: "l2" or one of `pipelines.runs.score.MEASURES`.
        coarser: List of overrides of the recipe, each of which makes the solver coarser. Operators
            are compared with the cost and error of these solves (`pipelines.studies.cost`).
        seeds: Number of trainings of each operator on this dataset; by default that of the
            benchmark.
    """

    experiment: str
    overrides: Overrides
    measure: Measure = "l2"
    coarser: Coarser = ()
    seeds: Count | None = None

    def load(self) -> Experiment:
        return load_experiment(self.experiment).with_overrides(self.overrides)


class Entry(Strict):
    """An operator of a benchmark.

    Args:
        model: The operator, for all datasets whose dimension it supports.
        models: Operators by dataset, if their settings differ.
        overrides: Values of keys of the experiments for this operator only. The report lists them.
        published: Published mean errors by dataset, in the measure of the dataset.
        published_grids: Published mean errors on other grids, by dataset and number of points.
        published_measures: Published mean errors in other measures, by dataset and measure.
        published_training: Published facts of the trainings, by dataset. "parameters" is the
            number of parameters, "gflop" the operations of a step in 1e9, "hours" the duration of
            the training, "seconds" the duration of an epoch, "epoch" the number of the best epoch.
        differs: Difference from the published setting, in words.
    """

    model: ModelSpec | None = None
    models: Annotated[dict[str, ModelSpec], Field(default_factory=dict)]
    overrides: Overrides
    published: Annotated[dict[str, float], Field(default_factory=dict)]
    published_grids: Annotated[dict[str, dict[_Points, float]], Field(default_factory=dict)]
    published_measures: Annotated[dict[str, dict[Measure, float]], Field(default_factory=dict)]
    published_training: Annotated[dict[str, dict[TrainingFact, float]], Field(default_factory=dict)]
    differs: str = ""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.model is None) == (not self.models):
            raise ValueError("an operator needs either model, or models by dataset")
        for figures in (getattr(self, figures) for figures in FIGURES):
            for name in (name for name in figures if self.models and name not in self.models):
                raise ValueError(f"published figures on {name}, for which models has no entry")
        return self

    @property
    def lacks(self) -> str:
        """A package that the operators need but that is not installed; "" if there is none."""
        models = [*self.models.values(), *([] if self.model is None else [self.model])]
        return next(filter(None, (model.lacks for model in models)), "")

    def on(self, datasets: list[str]) -> Entry:
        """This entry, restricted to the given datasets."""
        return self.model_copy(
            update={
                name: {k: v for k, v in getattr(self, name).items() if k in datasets}
                for name in ("models", *FIGURES)
            }
        )


class Quick(Strict):
    """The quick version of a benchmark, which suits two cores.

    Args:
        datasets: Names of the datasets in the quick version.
        overrides: Values of keys, for all experiments.
        changes: Values of further keys, by dataset.
        coarser: Coarser solves by dataset. Datasets that are not named have no coarser solves.
        operators: Operators that replace those of the benchmark; by default they are the same.
        seeds, protocols: Values that replace those of the benchmark; by default they are the same.
        search: Whether to run the search of the benchmark.
        budget: Epochs of each operator; by default the declared ones.
    """

    datasets: Annotated[list[str], Field(min_length=1)]
    overrides: Overrides
    changes: Annotated[dict[str, _Overrides], Field(default_factory=dict)]
    coarser: Annotated[dict[str, Coarser], Field(default_factory=dict)]
    operators: Annotated[dict[str, Entry], Field(default_factory=dict)]
    seeds: Count | None = None
    protocols: Protocols | None = None
    search: bool = True
    budget: Budget | None = None


class Profiled(Strict):
    """An operator of a profile.

    Args:
        model: The operator.
        published: Published costs: "speed" in steps per second, "gflop" of a step, "memory" of the
            device in GB, and "allocated", the sum of the memory in GB that all operations allocate.
        differs: Difference from the published setting, in words.
    """

    model: ModelSpec
    published: Annotated[dict[StepCost, float], Field(default_factory=dict)]
    differs: str = ""


class Profile(Extending):
    """A table of the costs of training steps, measured on random functions of one variable.

    Args:
        name: Name of the profile.
        summary: Description in one line.
        differs: Difference from the published setting, in words.
        source: Place of the published costs: publication, table and machine.
        points: Number of grid points.
        batch: Number of samples in a step.
        operators: The operators, by label in the table.
        quick: Name of the profile that is its quick version; empty if there is none.
    """

    name: Name
    summary: str
    differs: str = ""
    source: str = ""
    quick: str = ""
    points: Count
    batch: Count
    operators: Annotated[dict[str, Profiled], Field(min_length=1)]

    @model_validator(mode="after")
    def _sourced(self) -> Self:
        if not self.source and any(entry.published for entry in self.operators.values()):
            raise ValueError("published costs need their source: publication, table and machine")
        return self


_FIXED = ("training.seed", "training.protocol", "training.weights")  # of all trials of a search


def check(benchmark: Benchmark) -> None:
    """Raise SchemaError if a dataset, an operator's overrides, the search or the budget are
    invalid."""
    search = f"benchmark {benchmark.name}: a search"
    for name, dataset in benchmark.datasets.items():
        experiment = dataset.load()
        for overrides in dataset.coarser:
            experiment.data.load_recipe().with_overrides(overrides)
        cases = [case for case in benchmark.cases() if case.dataset == name]
        changed = {case.operator: benchmark.operators[case.operator].overrides for case in cases}
        for owner, keys in [*changed.items(), (search, benchmark.search)]:
            for key in keys:
                full = key if ".overrides." in key else experiment.full_key(key)
                if full.startswith(("data.recipe", "data.overrides")):
                    raise SchemaError(f"{owner}: {key} belongs to the dataset, for all operators")
                if owner == search and full in _FIXED:
                    raise SchemaError(f"{owner} needs the same {key} for all trials")
                if owner == search and not full.startswith("training."):
                    raise SchemaError(f"{owner} may only try settings of the training, got {key}")
                if full.startswith("model."):
                    raise SchemaError(f"{owner}: {key} is set in its model, not in overrides")
        if benchmark.search or benchmark.widths or benchmark.budget:
            _check_selects_by_validation(benchmark, cases, search)
        searched = [{key: value} for key, values in benchmark.search.items() for value in values]
        for overrides in filter(None, [*changed.values(), *searched]):
            experiment.with_overrides(overrides)
        for case in cases:
            benchmark.model(case).check_installed()
            if not is_name(benchmark.name_of(case)):
                raise SchemaError(f"benchmark {benchmark.name}: the name of {case} is too long")
            for chosen in benchmark.searched(case):
                benchmark.model(case, chosen)


def _check_selects_by_validation(benchmark: Benchmark, cases: list[Case], search: str) -> None:
    """Raise SchemaError if the search or the budget would choose by errors of the test split."""
    for case in cases:
        if case.protocol == "published" and len(benchmark.protocols) > 1:
            continue  # it has the settings that the other protocol chooses, or declared ones
        if benchmark.experiment(case, 0, {}).training.protocol == "published":
            raise SchemaError(
                f"{search if benchmark.budget is None else f'benchmark {benchmark.name}: a budget'}"
                " needs a validation error, which the protocol published does not have"
            )


WIDTHS = ("width", "channels")  # names of the width; an operator uses the first that it has
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Case:
    """One operator on one dataset, with the protocol if the benchmark has several."""

    dataset: str
    operator: str
    protocol: str = ""

    def __str__(self) -> str:
        suffix = f" (protocol {self.protocol})" if self.protocol else ""
        return f"{self.operator} on {self.dataset}{suffix}"


class Benchmark(Extending):
    """A benchmark: a table of operators on datasets.

    Args:
        name: Name of the benchmark.
        summary: Description in one line.
        differs: Difference from the published results in the table, in words.
        sources: Place in a publication of each kind of `published_training`.
        seeds: Number of trainings of each operator on each dataset; their seeds are 0, 1, ...
        protocols: Protocols with which each operator is trained; by default that of the experiment.
        search: Keys of the experiments and the values to try for each key. All combinations are
            trained with seed 0, for every operator and dataset, and the one with the smallest
            validation error is used. The protocol "published" has no validation error and uses the
            declared values.
        widths: Factors of each operator's width to try in the same search. [1]
        budget: Epochs of each operator, instead of a search; by default the declared ones.
        datasets: The datasets, by label in the table.
        operators: The operators, by label in the table.
        quick: The quick version; by default there is none.
    """

    name: Name
    summary: str
    differs: str = ""
    sources: Annotated[dict[TrainingFact, str], Field(default_factory=dict)]
    seeds: Count = 1
    protocols: Protocols = ()
    search: Search
    widths: Annotated[tuple[Positive, ...], Field(strict=False)] = ()
    budget: Budget | None = None
    datasets: Annotated[dict[str, Dataset], Field(min_length=1)]
    operators: Annotated[dict[str, Entry], Field(min_length=1)]
    quick: Quick | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        _check_operators(self.operators, self.datasets)
        check_slugs(self.datasets, "datasets")
        if self.quick is not None:
            for known, named in (
                (list(self.datasets), self.quick.datasets),
                (self.quick.datasets, self.quick.changes),
                (self.quick.datasets, self.quick.coarser),
            ):
                for name in (name for name in named if name not in known):
                    raise ValueError(f"quick: no dataset {name!r}: {near(name, known)}")
            _check_operators(self.quick.operators, self.datasets)
        for label, entry in self.operators.items():
            kinds = {kind for facts in entry.published_training.values() for kind in facts}
            for kind in sorted(kinds - self.sources.keys()):
                raise ValueError(f"{label}: published {kind} needs its place in sources.{kind}")
        if self.search or self.widths:
            small = self.quick is not None and self.quick.search and self.quick.budget is not None
            if small or self.budget is not None:
                raise ValueError("needs either budget or search and widths, got both")
        if len(set(self.protocols)) < len(self.protocols):
            raise ValueError(f"protocols must differ, got {', '.join(self.protocols)}")
        return self

    def check(self) -> None:
        """Raise SchemaError if a dataset, an operator's overrides, the search or the budget are
        invalid."""
        check(self)

    def searched(self, case: Case) -> list[dict[str, Any]]:
        """All combinations of settings, including widths, that a search tries for a case."""
        if case.protocol == "published" or not (self.search or self.widths):
            return []
        keys = {key: list(values) for key, values in self.search.items()}
        model = self.model(case)
        named = [key for key in WIDTHS if isinstance(getattr(model, key, None), int)]
        if self.widths and named:
            width, heads = getattr(model, named[0]), getattr(model, "heads", 1)
            first = heads if isinstance(heads, int) else heads[0]  # heads may differ by level
            unit = 1 if width % first else first  # heads that divide it
            widths = [unit * max(1, round(width * factor / unit)) for factor in self.widths]
            keys[f"model.{named[0]}"] = list(dict.fromkeys(widths))
        return [dict(zip(keys, values, strict=True)) for values in product(*keys.values())]

    def cases(self) -> list[Case]:
        """A case for each dataset, each operator declared for this dataset, and each protocol."""
        return [
            Case(dataset, label, protocol)
            for dataset in self.datasets
            for label, entry in self.operators.items()
            if entry.model is not None or dataset in entry.models
            for protocol in self.protocols or ("",)
        ]

    def seeds_on(self, dataset: str) -> int:
        """Number of trainings of each operator on a dataset."""
        return self.datasets[dataset].seeds or self.seeds

    @property
    def most_seeds(self) -> int:
        """The largest number of trainings of an operator on a dataset."""
        return max(map(self.seeds_on, self.datasets))

    def with_seeds(self, seeds: int) -> Benchmark:
        """This benchmark with the same number of trainings on all datasets."""
        datasets = {
            name: dataset.model_copy(update={"seeds": None})
            for name, dataset in self.datasets.items()
        }
        return self.model_copy(update={"seeds": seeds, "datasets": datasets})

    @property
    def grids(self) -> bool:
        """Whether any dataset is evaluated on several grids."""
        return any(len(dataset.load().resolutions) > 1 for dataset in self.datasets.values())

    def model(self, case: Case, chosen: Mapping[str, Any] = _NONE) -> Any:
        """The operator of a case, with the settings that a search has chosen."""
        entry = self.operators[case.operator]
        model: Any = entry.model or entry.models[case.dataset]
        changed = {k.removeprefix("model."): v for k, v in chosen.items() if k.startswith("model.")}
        if not changed:
            return model
        where = f"{case} with {', '.join(f'{key} {value}' for key, value in changed.items())}"
        return type(model).parse({**model.model_dump(mode="json"), **changed}, where)

    def experiment(self, case: Case, seed: int, chosen: Mapping[str, object]) -> Experiment:
        """The experiment of a case and a seed, with the settings that a search has chosen.

        Raises SchemaError for an unknown key or an impossible value.
        """
        experiment, model = self.datasets[case.dataset].load(), self.model(case, chosen)
        settings = {key: value for key, value in chosen.items() if not key.startswith("model.")}
        overrides = {**self.operators[case.operator].overrides, **settings}
        if case.protocol:
            overrides["training.protocol"] = case.protocol
        if overrides:
            experiment = experiment.with_overrides(overrides)
        return experiment.model_copy(
            update={
                "name": self.name_of(case),
                "summary": f"{case.operator} on {case.dataset}",
                "model": model,
                "training": experiment.training.model_copy(update={"seed": seed}),
            }
        )

    def name_of(self, case: Case) -> str:
        """Name of a case's experiment. Characters that names may not contain are replaced."""
        dataset = case.dataset if is_name(f"{self.name}-{case.dataset}") else slug(case.dataset)
        return f"{self.name}-{dataset}-{slug(case.operator)}"

    def not_installed(self) -> dict[str, str]:
        """Labels of the operators whose package is not installed, with the name of the package."""
        return {label: entry.lacks for label, entry in self.operators.items() if entry.lacks}

    def installed(self) -> Benchmark:
        """This benchmark without the operators whose package is not installed.

        If this would leave no operator, all operators are included.
        """
        return self.only([x for x in self.operators if x not in self.not_installed()], [])

    def only(self, operators: list[str], datasets: list[str]) -> Benchmark:
        """This benchmark with only some of its operators and datasets.

        An empty list selects all. Raises SchemaError for an unknown label, or for an operator that
        is not declared for any of the datasets.
        """
        known: dict[str, list[str]] = {
            "operator": list(self.operators),
            "dataset": list(self.datasets),
        }
        for (kind, labels), wanted in zip(known.items(), (operators, datasets), strict=True):
            for label in (label for label in wanted if label not in labels):
                raise SchemaError(
                    f"benchmark {self.name} has no {kind} {label!r}: {near(label, labels)}"
                )
        entries = {label: self.operators[label] for label in operators or self.operators}
        if datasets:
            entries = {
                label: entry.on(datasets)
                for label, entry in entries.items()
                if entry.model is not None or entry.models.keys() & set(datasets)
            }
        for label in (label for label in operators if label not in entries):
            raise SchemaError(
                f"operator {label!r} of benchmark {self.name} is on "
                f"{', '.join(self.operators[label].models)}, not on {', '.join(datasets)}"
            )
        if not entries:
            raise SchemaError(f"benchmark {self.name} has no operator on {', '.join(datasets)}")
        parts = {label: self.datasets[label] for label in datasets or self.datasets}
        quick = None if datasets else self.quick
        update = {"operators": entries, "datasets": parts, "quick": quick}
        if len(entries) < len(self.operators) or len(parts) < len(self.datasets):
            update["summary"] = f"{_counted(entries, 'operators')} on {_counted(parts, 'datasets')}"
        return self.model_copy(update=update)

    def quickly(self) -> Benchmark:
        """The quick version, named NAME-quick, without published results.

        Raises SchemaError if there is no quick version.
        """
        if self.quick is None:
            raise SchemaError(f"benchmark {self.name} has no quick version")
        bare = {**{figures: {} for figures in FIGURES}, "differs": ""}
        operators = {
            label: entry.model_copy(update=bare)
            for label, entry in (self.quick.operators or self.operators).items()
        }
        protocols = self.protocols if self.quick.protocols is None else self.quick.protocols
        small = self.model_copy(
            update={
                "name": f"{self.name}-quick",
                "differs": "",
                "sources": {},
                "operators": operators,
                "seeds": self.quick.seeds or self.seeds,
                "protocols": protocols,
                **({} if self.quick.search else {"search": {}, "widths": ()}),
                "budget": self.quick.budget,
                "summary": f"{self.summary.removesuffix('; for a GPU')}; small version",
            }
        )
        small, quick = small.only([], self.quick.datasets), self.quick
        small = small.model_copy(update={"datasets": {
            name: dataset.model_copy(update={"coarser": quick.coarser.get(name, ())})
            for name, dataset in small.datasets.items()
        }})  # fmt: skip
        return small._with(quick.overrides, quick.changes)

    def stores(self, texts: list[str]) -> dict[str, str]:
        """Parse texts DATASET=STORE, and return the URL of a store for each named dataset.

        Raises SchemaError for an unknown dataset.
        """
        stores = {}
        for text in texts:
            known = [name for name in self.datasets if text.startswith(f"{name}=")]
            dataset = max(known, key=len, default=text.partition("=")[0])
            store = text[len(dataset) + 1 :]
            if not store:
                raise SchemaError(f"--data must be DATASET=STORE, got {text!r}")
            if dataset not in self.datasets:
                raise SchemaError(
                    f"benchmark {self.name} has no dataset {dataset!r}: "
                    f"{near(dataset, list(self.datasets))}"
                )
            stores[dataset] = store
        return stores

    def with_overrides(
        self, overrides: Mapping[str, Any], stores: Mapping[str, str] = _NONE, sound: bool = True
    ) -> Benchmark:
        """This benchmark with some keys changed in the experiments of all datasets.

        The search no longer varies these keys.

        Args:
            overrides: New values by key.
            stores: URLs of the stores given on the command line, by dataset.
            sound: Whether to call `check`.

        Raises:
            SchemaError: For a wrong key or value, for a key that the benchmark itself sets, or if a
                change does not match a given store.
        """
        if not overrides:
            return self
        experiment, overrides = next(iter(self.datasets.values())).load(), flattened(overrides)
        for key in (key for key in overrides if ".overrides." in key):
            raise SchemaError(f"{key} cannot be set: recipes and streams belong to the datasets")
        keys = {experiment.full_key(key): value for key, value in overrides.items()}
        for key in keys:
            if key.split(".")[0] == "model" or key == "training.seed":
                raise SchemaError(f"{key} cannot be set: the benchmark sets operators and seeds")
            if key == "training.protocol" and self.protocols:
                raise SchemaError(f"{key} cannot be set: the benchmark sets the protocols")
        for name in stores.keys() & self.datasets.keys():
            self.datasets[name].load().on(stores[name], keys)
        note = ", ".join(f"{key} = {value}" for key, value in keys.items())
        differs = " ".join(filter(None, [self.differs, f"Set by the command: {note}."]))
        update = {"differs": differs, "search": without(self.search, keys)}
        changed = self._with(keys).model_copy(update=update)
        if sound:
            changed.check()
        return changed

    def _with(
        self, overrides: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Benchmark:
        """This benchmark with `overrides` applied to all experiments."""
        datasets = {}
        for name, dataset in self.datasets.items():
            own = merged(dataset.overrides, overrides, (changes or {}).get(name, {}))
            datasets[name] = dataset.model_copy(update={"overrides": own})
        operators = {}
        for label, entry in self.operators.items():
            rest = without(merged(entry.overrides, overrides), overrides)
            operators[label] = entry.model_copy(update={"overrides": rest})
        return self.model_copy(update={"datasets": datasets, "operators": operators})


def load_quick_profile(profile: Profile) -> Profile:
    """Load the quick version of a profile.

    Raises SchemaError if there is no quick version, or if the key `quick` names a benchmark.
    """
    if not profile.quick:
        raise SchemaError(f"profile {profile.name} has no quick version")
    quick = load_benchmark(profile.quick)
    if not isinstance(quick, Profile):
        raise SchemaError(f"profile {profile.name}: quick must name a profile, got {profile.quick}")
    return quick


def load_benchmark(name: str, sound: bool = True) -> Benchmark | Profile:
    """Load a benchmark or a profile by name or from a TOML file.

    A file with the key `points` is a profile. A file with the key `extends` is merged over the file
    that it names (`pipelines.config.benchmark.merged`).

    Args:
        sound: Whether to call `Benchmark.check`, which then omits operators whose package is not
            installed. If this is false, the caller must call it.

    Raises:
        SchemaError: For an unknown name or an impossible benchmark. The message suggests similar
            names.
    """
    path = file_of("benchmark", name)
    content = read_benchmark(path)
    if "points" in content:
        return Profile.parse(content, str(path))
    benchmark = Benchmark.parse(content, str(path))
    if sound:
        benchmark.installed().check()
    return benchmark


def _counted(names: Collection[str], plural: str) -> str:
    """The names joined by commas; if there are five or more, only their number."""
    return ", ".join(names) if len(names) < 5 else f"{len(names)} {plural}"


def _check_operators(operators: Mapping[str, Entry], datasets: Mapping[str, Dataset]) -> None:
    """Raise ValueError for an unknown dataset, or for two labels that give the same path."""
    for label, entry in operators.items():
        named = {*entry.models, *(name for table in FIGURES for name in getattr(entry, table))}
        for name in named - datasets.keys():
            raise ValueError(f"{label}: no dataset {name!r}: {near(name, list(datasets))}")
    check_slugs(operators, "operators")


def with_plugin_rows(benchmark: Benchmark) -> Benchmark:
    """A benchmark with one more row for each operator of a user's file that it does not have.

    The row has the name of the operator, its default settings, and all datasets whose domains the
    operator takes. Raises SchemaError if the row would have the folder of another row.
    """
    models = [
        model
        for entry in benchmark.operators.values()
        for model in (*entry.models.values(), entry.model)
        if model is not None
    ]
    present = {model.name for model in models} | benchmark.operators.keys()
    rows = dict[str, Entry]()
    for name, registered in OPERATORS.items():
        if name in present or plugin_of(registered.operator) is None:
            continue
        table = {"name": name}
        model = MODELS[name].parse(table, f"model {name}")
        taken = [label for label in benchmark.datasets if _takes(model, benchmark, label)]
        # if no dataset fits, whether the row is asked for is known later
        content = {"models": dict.fromkeys(taken, table)} if taken else {"model": table}
        rows[name] = Entry.parse(content, name)
    if not rows:
        return benchmark
    operators = {**benchmark.operators, **rows}
    try:
        check_slugs(operators, "operators")
    except ValueError as error:
        raise SchemaError(f"benchmark {benchmark.name}: {error}") from None
    return benchmark.model_copy(update={"operators": operators})


def _takes(model: Model, benchmark: Benchmark, dataset: str) -> bool:
    """Whether an operator takes the domain of a dataset."""
    domain = benchmark.datasets[dataset].load().data.load_recipe().problem.domain
    kinds = {grid.kind for grid in domain.grids} if isinstance(domain, Box) else {domain.kind}
    operator = model.operator
    shared = operator.points_by_sample or not domain.moves
    return domain.dim in model.dims() and kinds <= operator.domains and shared
