"""The table `data` of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from pdegen.recipe import Recipe, load_recipe
from pdegen.schema import Count, Strict
from pipelines.config.stream import Stream

_GRIDS = ("resolution", "resolutions")  # keys of `Data`, of which exactly one is set
_NAMES = {"resolution", *(f"data.{key}" for key in _GRIDS)}  # `resolutions` is another key


class Data(Strict):
    """The dataset, the grid to train on, and the input and target variables.

    Exactly one of `resolution` and `resolutions` is set.

    Args:
        recipe: Name of the recipe of the dataset, or its TOML file.
        overrides: Values of keys of this recipe.
        resolution: Number of points along each axis of the inputs, and by default of the targets.
        resolutions: Several such numbers, on grids of a box. Each training batch has one of them,
            and each of them has the same number of batches. The finest one chooses the epoch.
        input: Name of the input variable: "a" for forward problems, "u" for inverse problems.
        target: Name of the target variable.
        target_resolution: Number of cells along each axis of the targets. The targets are averaged
            over these cells.
        reading: "resident" keeps all samples in memory, on the device; "streamed" reads shards
            ahead and shuffles a few at a time; "auto" is "resident" if the samples fit.
        samples: Number of training samples. The first samples of the training split are used; by
            default all of them.
        epoch_samples: Number of samples in an epoch. The default is the number of training samples,
            or with a stream the size of the training split.
        stream: Recipe whose samples replace the training split.
    """

    recipe: str
    overrides: Annotated[dict[str, Any], Field(default_factory=dict)]
    resolution: Count | None = None
    resolutions: Annotated[tuple[Count, ...], Field(min_length=2, strict=False)] | None = None
    input: str = "a"
    target: str = "u"
    target_resolution: Count | None = None
    reading: Literal["auto", "resident", "streamed"] = "auto"
    samples: Count | None = None
    epoch_samples: Count | None = None
    stream: Stream | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if (self.resolution is None) == (self.resolutions is None):
            both = "both" if self.resolution is not None else "neither"
            raise ValueError(f"needs either resolution or resolutions, got {both}")
        if self.resolutions and len(set(self.resolutions)) < len(self.resolutions):
            raise ValueError(f"resolutions must differ, got {list(self.resolutions)}")
        if self.resolutions and self.stream is not None and self.stream.sampling == "tail":
            raise ValueError('resolutions are for uniform streams: leave sampling = "tail" out')
        stored = {"reading": self.reading != "auto", "samples": self.samples is not None}
        for key in (key for key, is_set in stored.items() if is_set):
            if self.stream is not None:
                raise ValueError(
                    f"{key} is for stored samples, replaced by the stream of {self.stream.recipe}: "
                    "leave one of the two out"
                )
        return self

    @model_serializer(mode="wrap")
    def _with_one_grid(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the one of `resolution` and `resolutions` that is not set, as records of
        earlier versions do."""
        table = content(self)
        return {key: v for key, v in table.items() if key not in _GRIDS or v is not None}

    @property
    def training_resolutions(self) -> tuple[int, ...]:
        """Numbers of points along the first axis of the training batches."""
        if self.resolutions is not None:
            return self.resolutions
        assert self.resolution is not None
        return (self.resolution,)

    @property
    def finest_resolution(self) -> int:
        """The largest of these numbers. Selection and the main scores are at this resolution."""
        return max(self.training_resolutions)

    def load_recipe(self) -> Recipe:
        return load_recipe(self.recipe).with_overrides(self.overrides)


def merged(*layers: Mapping[str, object]) -> dict[str, object]:
    """Overrides of an experiment in which later layers replace the keys of earlier ones. In this
    sense `data.resolution` and `data.resolutions` are the same key."""
    overrides = dict[str, object]()
    for layer in layers:
        replaced = layer.keys() | (_NAMES if layer.keys() & _NAMES else set())
        kept = {key: value for key, value in overrides.items() if key not in replaced}
        overrides = {**kept, **layer}  # those of a later layer come last
    return overrides


def alternatives(changes: Mapping[str, object]) -> dict[str, object]:
    """Changes of an experiment's keys, in which `data.resolution` and `data.resolutions` replace
    each other."""
    keys = [f"data.{name}" for name in _GRIDS]
    replaced = dict.fromkeys(keys) if len(changes.keys() & set(keys)) == 1 else {}
    return {**replaced, **changes}
