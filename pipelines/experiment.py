"""An experiment: data, model, training and evaluation in one strict TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from operators.train import Settings
from pdegen.recipe import Recipe, load_recipe
from pdegen.schema import Count, Positive, SchemaError, Strict, near
from pdegen.store import open_sealed
from pipelines.registry import (
    AdamOptimizer,
    InputNoise,
    LossSpec,
    ModelSpec,
    Normalization,
    OptimizerSpec,
    Symmetries,
)


class Data(Strict):
    """The recipe of the dataset, overrides of it, the grid to train on, and what is learned.

    Args:
        recipe, overrides: Of the dataset.
        resolution: Points of each axis of the inputs, and of the targets by default.
        input, target: Names of the variables; ("a", "u") is the forward operator, ("u", "a") the
            inverse one.
        target_resolution: Average the targets over so many cells of each axis.
        reading: "resident" has all samples in memory, on the device; "streamed" reads shards ahead
            and shuffles a few at a time; "auto" is "resident" where they fit.
    """

    recipe: str
    overrides: Annotated[dict[str, Any], Field(default_factory=dict)]
    resolution: Count
    input: str = "a"
    target: str = "u"
    target_resolution: Count | None = None
    reading: Literal["auto", "resident", "streamed"] = "auto"

    def load_recipe(self) -> Recipe:
        return load_recipe(self.recipe).with_overrides(self.overrides)


class Training(Strict):
    """How to train. See `operators.train.Settings`.

    Args:
        protocol: "validation" chooses the epoch on the validation split and reads the test split
            once, at the end. "published" watches the test split after every epoch and reports
            the last and the best epoch, for comparison with published tables.
    """

    protocol: Literal["validation", "published"] = "validation"
    epochs: Count = 100
    batch: Count = 8
    lr: Positive = 1e-3
    warmup: Annotated[float, Field(gt=0, lt=1)] = 0.3
    div: Annotated[float, Field(ge=1)] = 1e4
    final_div: Annotated[float, Field(ge=1)] = 1e4
    clip: Positive = 0.999
    seed: Annotated[int, Field(ge=0)] = 0
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    loss: LossSpec
    optimizer: OptimizerSpec = AdamOptimizer(name="adam")
    symmetries: Symmetries = Symmetries()

    def settings(self) -> Settings:
        """For `fit`."""
        return Settings(
            loss=self.loss.build(),
            optimizer=self.optimizer.build(),
            cycle_momentum=self.optimizer.cycle_momentum,
            augment=self.symmetries.build(),
            **self.model_dump(exclude={"protocol", "loss", "optimizer", "symmetries"}),
        )

    @property
    def selection_split(self) -> str:
        return "test" if self.protocol == "published" else "validation"

    @property
    def reported(self) -> tuple[str, ...]:
        """The checkpoints whose test scores are reported."""
        return ("last", "best") if self.protocol == "published" else ("best",)


class Experiment(Strict):
    """Everything that a run depends on.

    Args:
        name, summary: For people.
        data, model, training, normalization: See there.
        noise: Of the inputs; none by default.
        resolutions: Grids to evaluate on, without training again.
    """

    name: str
    summary: str
    resolutions: Annotated[tuple[Count, ...], Field(min_length=1, strict=False)]
    data: Data
    model: ModelSpec
    training: Training
    normalization: Normalization = Normalization()
    noise: InputNoise | None = None

    @classmethod
    def on_store(cls, store: str, model: str) -> Experiment:
        """A model with its default settings on all points of a store, chosen on validation.

        Raises:
            StoreError: If there is no such store.
        """
        opened = open_sealed(store)
        recipe, resolution = opened.attributes["recipe"]["name"], opened.array("x").shape[0]
        plane = "y" in opened.group
        content = {
            "name": f"{model}-on-{recipe}",
            "summary": f"{model} on a store of {recipe}",
            "resolutions": [resolution],
            "data": {"recipe": recipe, "resolution": resolution},
            "model": {"name": model},
            "training": {"loss": {"name": "weighted-h1" if plane else "h1"}},
            "normalization": dict.fromkeys(("input", "target"), "scalar" if plane else "none"),
        }
        return cls.parse(content, f"model {model} on {store}")

    def at_level(self, level: float) -> Experiment:
        """This experiment with another noise level of the inputs.

        Raises:
            SchemaError: If the level is impossible.
        """
        noise = self.noise or InputNoise(level=0.0)
        where = f"experiment {self.name}, noise"
        return self.model_copy(update={"noise": noise.replaced({"level": level}, where)})

    def with_overrides(self, overrides: Mapping[str, Any]) -> Experiment:
        """This experiment with other values at dotted keys.

        Keys below `data.overrides` are those of the recipe.

        Raises:
            SchemaError: On an unknown key or an impossible value.
        """
        changes = {}
        for key, value in overrides.items():
            if key.startswith("data.overrides."):
                recipe_key = self.data.load_recipe().own_key(key.removeprefix("data.overrides."))
                merged = changes.setdefault("data.overrides", dict(self.data.overrides))
                merged[recipe_key] = value
            else:
                changes[self.full_key(key)] = value
        return self.replaced(changes, f"experiment {self.name}")


def experiment_folder() -> Path:
    """The folder of the experiments that come with the project."""
    return Path(__file__).parent / "experiments"


def experiment_names() -> list[str]:
    """The experiments that come with the project."""
    return sorted(path.stem for path in experiment_folder().glob("*.toml"))


def load_experiment(name: str) -> Experiment:
    """An experiment by its name, or from a TOML file.

    Raises:
        SchemaError: On an unknown name (naming the near ones) or an impossible declaration.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = experiment_folder() / f"{name}.toml"
        if name not in experiment_names():
            raise SchemaError(f"unknown experiment {name!r}: {near(name, experiment_names())}")
    experiment = Experiment.load(path)
    experiment.data.load_recipe()  # so that a wrong recipe is reported now
    return experiment
