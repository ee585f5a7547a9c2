"""Lines of a benchmark or a profile: datasets, operators, and the small version of both."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pdegen.schema import Count, Name, Strict
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.config.registry import ModelSpec
from pipelines.config.training import Protocol

Overrides = Annotated[dict[str, Any], Field(default_factory=dict)]
Coarser = Annotated[tuple[dict[str, Any], ...], Field(strict=False)]
Measure = Literal["l2", "block", "steps", "seen", "unseen", "l1", "points", "near", "deformed"]
Protocols = Annotated[tuple[Protocol, ...], Field(strict=False)]
_Points = Annotated[int, Field(strict=False)]  # keys of TOML are strings


class Dataset(Strict):
    """What all operators are trained and evaluated on, and how.

    Args:
        experiment, overrides: Data, training, normalisation and resolutions; not the model.
        measure: What the table is of: "l2", or one of `pipelines.runs.measures.MEASURES`.
        coarser: Overrides of the recipe, each of which solves more coarsely: what operators have to
            beat (`pipelines.studies.solver`).
    """

    experiment: str
    overrides: Overrides
    measure: Measure = "l2"
    coarser: Coarser = ()

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
        for figures in (self.published, self.published_grids, self.published_measures):
            for name in (name for name in figures if self.models and name not in self.models):
                raise ValueError(f"published figures on {name}, where it has no model")
        return self

    @property
    def lacks(self) -> str:
        """A package that its operators need and that is not installed; empty where none is."""
        models = [*self.models.values(), *([] if self.model is None else [self.model])]
        return next(filter(None, (model.lacks for model in models)), "")

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
        coarser: Of single datasets, whose recipes may be others; without them, none.
        operators: In place of those of the table; without them, those.
        seeds, protocols: In place of those of the table, where they are given.
        search: Whether it searches as the table does.
    """

    datasets: Annotated[list[str], Field(min_length=1)]
    overrides: Overrides
    changes: Annotated[dict[str, dict[str, Any]], Field(default_factory=dict)]
    coarser: Annotated[dict[str, Coarser], Field(default_factory=dict)]
    operators: Annotated[dict[str, Entry], Field(default_factory=dict)]
    seeds: Count | None = None
    protocols: Protocols | None = None
    search: bool = True


class Profiled(Strict):
    """An operator of a profile.

    Args:
        model: The operator.
        published: What was published of it, in words.
    """

    model: ModelSpec
    published: str = ""


class Profile(Strict):
    """Operators on random functions of one variable.

    Args:
        name, summary: For people.
        differs: What differs from what is published.
        points, batch: Grid points, and samples in a step.
        operators: By the names that the table shows.
        quick: The name of its small version, where there is one.
    """

    name: Name
    summary: str
    differs: str = ""
    quick: str = ""
    points: Count
    batch: Count
    operators: Annotated[dict[str, Profiled], Field(min_length=1)]
