"""The trainings and tests of a noise study: operators, noise levels and seeds."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pdegen.schema import SchemaError
from pipelines.config.experiment import Experiment, InputNoise
from pipelines.studies.noise_cells import (
    Cell,
    Trained,
    check_classical,
    check_kinds,
    check_levels,
    key,
    word,
)
from pipelines.studies.noise_operators import check_operators
from pipelines.studies.runner import StudyTraining


@dataclass(frozen=True)
class NoisePlan:
    """The trainings and tests of a noise study, without classical methods.

    If the noise is on the inputs, models are trained and tested at several noise levels. If it is
    on the targets, models are trained with noisy targets, and tested on targets without noise.

    Args:
        experiment: Declares the data and the noise. Its operator is the only one of the study
            unless `operators` are given.
        train_levels: Noise levels or ranges at which models are trained. With a range, each sample
            gets a random level in this range, and the level is an input of the model.
        test_levels: Noise levels of the inputs of the test samples; 0 alone if the noise is on the
            targets.
        inversion_samples: Largest number of test samples on which classical methods are tested.
        assumed_levels: Noise levels that classical methods, and models trained on a range, assume.
            Levels are given as multiples of the true level, and include 1.
        only: Names of the classical methods to test; by default all that the equation offers. The
            name `noise_cells.NONE` alone stands for no method.
        test_kind: Kind of noise on the test samples; by default the kind that the experiment
            declares. All methods assume the declared kind.
        cells: Number of cells along each axis on which classical methods reconstruct the
            coefficient; by default the number of data points.
        operators: Experiments whose operators are compared, with the same data and noise as
            `experiment`; by default that of `experiment` alone.

    Raises:
        SchemaError: If the experiment has no noise, a level is impossible, or two operators have
            the same name or different data. `NoiseStudy.check` also raises it if the equation does
            not offer a requested method.
    """

    experiment: Experiment
    store: str
    folder: Path
    train_levels: tuple[Trained, ...]
    test_levels: tuple[float, ...]
    seeds: int
    inversion_samples: int = 100
    assumed_levels: tuple[float, ...] = (1.0,)
    only: tuple[str, ...] = ()
    test_kind: str | None = None
    cells: int | None = None
    operators: tuple[Experiment, ...] = ()

    def __post_init__(self) -> None:
        noise = self.experiment.noise
        if noise is None:
            raise SchemaError(
                f"study noise: experiment {self.experiment.name} has no [noise]: "
                "set noise.level=0.01"
            )
        check_operators(self.experiment, self.operators)
        if self.on_targets:
            self._check_targets()
        for name, levels in (("train", self.train_levels), ("test", self.test_levels)):
            for level in levels:
                self.noise(level)  # raises for an impossible level
            check_levels(name, levels)
        for model in self.models:
            self.training(model)  # raises if this level cannot be trained
        if self.seeds < 1:
            raise SchemaError(f"seeds must be at least 1, got {self.seeds}")
        check_classical(self.inversion_samples, self.assumed_levels, self.cells, self.only)
        check_kinds(noise.kind, self.test_kind)
        for level in self.test_levels:
            self.tested(level)  # raises for an unknown kind

    def _check_targets(self) -> None:
        """Raise SchemaError for options that need noise on the inputs."""
        options = {
            "--test-levels": self.test_levels != (0.0,),
            "--test-kind": self.test_kind is not None,
            "--assumed-level": self.assumed_levels != (1.0,),
        }
        for option in (option for option, is_set in options.items() if is_set):
            raise SchemaError(
                f"{option} is for noise on the inputs: here only targets of training samples have "
                "noise: leave it out"
            )

    @property
    def on_targets(self) -> bool:
        """Whether the noise is on the targets of training samples alone."""
        return self.experiment.noise is not None and not self.experiment.noise.on_inputs

    def noise(self, level: Trained) -> InputNoise:
        """The experiment's noise at a given level. Models are trained with this noise, and
        classical methods assume it.
        """
        assert self.experiment.noise is not None
        return self.experiment.noise.replaced({"level": level}, "noise level")

    def tested(self, level: float) -> InputNoise:
        """The noise on the test samples at a given level."""
        noise = self.noise(level)
        if self.test_kind is None:
            return noise
        fields = {"kind": self.test_kind, "level": level, "seed": noise.seed, "fresh": noise.fresh}
        return InputNoise.parse(fields, "test kind")

    @cached_property
    def experiments(self) -> dict[str, Experiment]:
        """The experiment of each operator. The key is the name of the operator, or empty for the
        operator of `experiment`."""
        declared = self.experiment.model.name
        names = [variant.model.name for variant in self.operators]
        keys = ["" if name == declared else name for name in names]
        return dict(zip(keys, self.operators, strict=True)) or {"": self.experiment}

    @property
    def names(self) -> tuple[str, str]:
        """Names of the inputs and of the targets."""
        input, target = (
            name if isinstance(name, str) else ", ".join(name) for name in self.experiment.variables
        )
        return input, target

    def operator(self, part: Cell) -> str:
        """Name of the operator of a model."""
        return part.operator or self.experiment.model.name

    def label(self, part: Cell) -> str:
        """Name of a method in reports, with its operator if the study has several."""
        name = part.named(self.unit)
        if isinstance(part.method, str) or len(self.experiments) == 1:
            return name
        return f"{self.operator(part)} {name}"

    @property
    def unit(self) -> str:
        """Unit that is written after a level: "dB", or nothing for levels that are shares."""
        unit = self.noise(self.test_levels[0]).build().unit
        return unit if unit == "dB" else ""

    def word(self, level: Trained) -> str:
        """Text for a level in reports, with its unit."""
        return word(level, self.unit)

    @cached_property
    def models(self) -> list[Cell]:
        return [
            Cell(level, seed, operator=operator)
            for operator in self.experiments
            for level in self.train_levels
            for seed in range(self.seeds)
        ]

    @property
    def with_wrong_level(self) -> list[Cell]:
        """A cell for each model trained on a range and each wrong level that it assumes."""
        wrong = [factor for factor in self.assumed_levels if factor != 1]
        ranged = [model for model in self.models if isinstance(model.method, tuple)]
        return [replace(model, assumed_level=factor) for factor in wrong for model in ranged]

    def training(self, cell: Cell) -> StudyTraining:
        changed = {"noise.level": cell.method, "training.seed": cell.seed}
        assert not isinstance(cell.method, str)
        name = f"level-{key(cell.method)}-seed-{cell.seed}"
        folder = self.folder / "models" / "-".join(filter(None, [cell.operator, name]))
        experiment = self.experiments[cell.operator]
        return StudyTraining(experiment.with_overrides(changed), self.store, folder)
