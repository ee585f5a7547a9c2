"""What a benchmark declares: operators x datasets x seeds at one protocol."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pdegen.schema import Count, Name, SchemaError, Strict, near, read_toml
from pipelines.declared.experiment import Experiment, load_experiment
from pipelines.declared.profile import Profile
from pipelines.declared.registry import ModelSpec
from pipelines.declared.shipped import file_of

Overrides = Annotated[dict[str, Any], Field(default_factory=dict)]
_Values = Annotated[list[Any], Field(min_length=1)]
Measure = Literal["l2", "block", "steps", "seen", "unseen", "l1", "points", "near", "deformed"]
_Points = Annotated[int, Field(strict=False)]  # keys of TOML are strings


class Dataset(Strict):
    """What all operators are trained and evaluated on, and how.

    Args:
        experiment, overrides: Data, training, normalisation and resolutions; not the model.
        measure: What the table is of: "l2", or one of `pipelines.runs.score.MEASURES`.
    """

    experiment: str
    overrides: Overrides
    measure: Measure = "l2"

    def load(self) -> Experiment:
        return load_experiment(self.experiment).with_overrides(self.overrides)


class Entry(Strict):
    """An operator of a benchmark.

    Args:
        model: On every dataset of a dimension that it is for.
        models: On each dataset that is named, where they differ.
        overrides: Of the experiments, where this operator's training must differ; reported.
        published: Mean errors that were published, by dataset, in its measure.
        published_grids: The same on other grids than that of training, by dataset and points.
        published_measures: The same in other measures, by dataset and measure.
        differs: What differs from the published setting.
    """

    model: ModelSpec | None = None
    models: Annotated[dict[str, ModelSpec], Field(default_factory=dict)]
    overrides: Overrides
    published: Annotated[dict[str, float], Field(default_factory=dict)]
    published_grids: Annotated[dict[str, dict[_Points, float]], Field(default_factory=dict)]
    published_measures: Annotated[dict[str, dict[Measure, float]], Field(default_factory=dict)]
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
                for name in ("models", "published", "published_grids", "published_measures")
            }
        )


class Quick(Strict):
    """A small version, for two cores.

    Args:
        datasets: Which of the datasets.
        overrides: Of their experiments.
        changes: Further overrides, of the experiments of single datasets.
        operators: In place of those of the table; without them, those.
    """

    datasets: Annotated[list[str], Field(min_length=1)]
    overrides: Overrides
    changes: Annotated[dict[str, dict[str, Any]], Field(default_factory=dict)]
    operators: Annotated[dict[str, Entry], Field(default_factory=dict)]


@dataclass(frozen=True)
class Case:
    """One operator on one dataset."""

    dataset: str
    operator: str


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

    name: Name
    summary: str
    differs: str = ""
    seeds: Count = 1
    search: Annotated[dict[str, _Values], Field(default_factory=dict)]
    datasets: Annotated[dict[str, Dataset], Field(min_length=1)]
    operators: Annotated[dict[str, Entry], Field(min_length=1)]
    quick: Quick | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        _check_operators(self.operators, self.datasets)
        _check_slugs(self.datasets, "datasets")
        if self.quick is not None:
            for known, named in (
                (list(self.datasets), self.quick.datasets),
                (self.quick.datasets, self.quick.changes),
            ):
                for name in (name for name in named if name not in known):
                    raise ValueError(f"quick: no dataset {name!r}: {near(name, known)}")
            _check_operators(self.quick.operators, self.datasets)
        if len(self.search) > 1:
            raise ValueError(f"search is over one key, got {', '.join(self.search)}")
        return self

    def check(self) -> None:
        """Raise SchemaError where a dataset, or what an operator overrides of it, cannot be."""
        search = f"benchmark {self.name}: a search"
        for name, dataset in self.datasets.items():
            experiment = dataset.load()
            labels = [case.operator for case in self.cases() if case.dataset == name]
            changed = {label: self.operators[label].overrides for label in labels}
            for what, keys in [*changed.items(), (search, self.search)]:
                for key in keys:
                    full = key if ".overrides." in key else experiment.full_key(key)
                    if full.startswith(("data.recipe", "data.overrides")):
                        raise SchemaError(
                            f"{what}: {key} is said by the dataset, for all operators"
                        )
                    if what == search and (full.startswith("model.") or full == "training.seed"):
                        raise SchemaError(f"{what} is over settings of the training, got {key}")
                    if full.startswith("model."):
                        raise SchemaError(f"{what}: {key} is said in its model, not overridden")
            if self.search and experiment.training.protocol == "published":
                raise SchemaError(
                    f"{search} is by the validation error, the protocol published has none"
                )
            for overrides in filter(None, [*changed.values(), *self.searched()]):
                experiment.with_overrides(overrides)

    def searched(self) -> list[dict[str, Any]]:
        """What a search tries."""
        return [{key: value} for key, values in self.search.items() for value in values]

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
            SchemaError: If one is unknown, or a chosen operator is on no chosen dataset.
        """
        known: dict[str, list[str]] = {
            "operator": list(self.operators),
            "dataset": list(self.datasets),
        }
        for (what, there), wanted in zip(known.items(), (operators, datasets), strict=True):
            for label in (label for label in wanted if label not in there):
                raise SchemaError(
                    f"benchmark {self.name} has no {what} {label!r}: {near(label, there)}"
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
        return self.model_copy(update={"operators": entries, "datasets": parts, "quick": quick})

    def quickly(self) -> Benchmark:
        """The small version, under a name of its own; nothing published compares with it.

        Raises:
            SchemaError: If there is none.
        """
        if self.quick is None:
            raise SchemaError(f"benchmark {self.name} has no quick version")
        bare = {"published": {}, "published_grids": {}, "published_measures": {}, "differs": ""}
        operators = {
            label: entry.model_copy(update=bare)
            for label, entry in (self.quick.operators or self.operators).items()
        }
        small = self.model_copy(
            update={
                "name": f"{self.name}-quick",
                "differs": "",
                "operators": operators,
                "summary": f"{self.summary.removesuffix('; for a GPU')}; small version",
            }
        )
        overrides, changes = self.quick.overrides, self.quick.changes
        return small.only([], self.quick.datasets)._with(overrides, changes)

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

    def _with(
        self, overrides: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Benchmark:
        """With other values in all experiments, and in those of single datasets."""
        datasets = {}
        for name, dataset in self.datasets.items():
            every = {**dataset.overrides, **overrides, **(changes or {}).get(name, {})}
            datasets[name] = dataset.model_copy(update={"overrides": every})
        operators = {}
        for label, entry in self.operators.items():
            own = {key: v for key, v in entry.overrides.items() if key not in overrides}
            operators[label] = entry.model_copy(update={"overrides": own})
        changed = self.model_copy(update={"datasets": datasets, "operators": operators})
        changed.check()
        return changed


def load_quick_profile(profile: Profile) -> Profile:
    """The small version that a profile names.

    Raises:
        SchemaError: If it names none, or what is no profile.
    """
    if not profile.quick:
        raise SchemaError(f"profile {profile.name} has no quick version")
    quick = load_benchmark(profile.quick)
    if not isinstance(quick, Profile):
        raise SchemaError(f"profile {profile.name}: quick is a profile, {profile.quick} is none")
    return quick


def load_benchmark(name: str) -> Benchmark | Profile:
    """A benchmark by its name, or from a TOML file; one with `points` is a profile.

    Raises:
        SchemaError: On an unknown name (naming the near ones) or an impossible declaration.
    """
    path = file_of("benchmark", name)
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
        figures = (entry.published, entry.published_grids, entry.published_measures)
        named = {*entry.models, *(name for of in figures for name in of)}
        for name in named - datasets.keys():
            raise ValueError(f"{label}: no dataset {name!r}: {near(name, list(datasets))}")
    _check_slugs(operators, "operators")


def _check_slugs(names: Collection[str], what: str) -> None:
    slugs = [slug(name) for name in names]
    for name in {name for name in slugs if slugs.count(name) > 1 or not name}:
        raise ValueError(f"names of {what} differ in more than signs, got {name!r} twice")
