"""Tables of a benchmark or profile file: datasets, operators and the quick version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pdegen.schema import Count, Name, Positive, Strict, flattened
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.config.models import ModelSpec
from pipelines.config.training import Protocol

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
            merged declaration (`pipelines.config.extending`).
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
        measure: The error shown in the table: "l2" or one of `pipelines.runs.measures.MEASURES`.
        coarser: List of overrides of the recipe, each of which makes the solver coarser. Operators
            are compared with the cost and error of these solves (`pipelines.studies.solver`).
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
