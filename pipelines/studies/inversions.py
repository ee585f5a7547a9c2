"""Classical inversion of an experiment's data, by the methods that the equation of the store
offers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from operators.data import Samples, Subsample, averaging_weights
from operators.norms import mean_defined, relative_error
from pdegen.domains import Box, Domain
from pdegen.equations.base import Problem
from pdegen.files import DamagedError, read_json
from pdegen.generation.generate import RecipeJob, other_equation
from pdegen.inverse.classical import ClassicalMethod, Estimate, Forward, InverseProblem
from pdegen.plugins import plugin_of
from pdegen.recipe import Recipe
from pdegen.sampling.noise import SensorNoise
from pdegen.sampling.noise_law import NoiseLaw
from pdegen.schema import SchemaError, brief, flattened
from pdegen.store.reading import open_sealed
from pipelines.config.conditions import StudyCondition
from pipelines.config.declared import parse_model
from pipelines.config.experiment import Experiment, InputNoise, domain_of
from pipelines.runs.data import Source
from pipelines.studies.runner import StudyTraining

ALL = "all"
NONE = "none"  # as the only name of a classical method, it stands for no method
Trained = float | tuple[float, float]  # a level, or the ends of a range of levels
CONSTANT = "constant"
_LEAST = 4  # cells along an axis
_CONDITION_BYTES = 100  # of a name, which ends the names of files


@dataclass(frozen=True)
class Cell:
    """A part of a noise study: one training, or one test of a method.

    Args:
        method: Name of a classical method; or the noise level, or the range of levels, at which a
            model is trained. A model trained on a range has the level as an input.
        at: Noise level of the test samples; None for the training itself.
        assumed_level: Noise level that a classical method, or a model trained on a range, assumes.
            It is a multiple of the true level.
        corrected: Whether a classical method corrects the model's prediction.
        together: Whether the models of all seeds are one method, whose answer is their mean and
            whose draws are their predictions (Lakshminarayanan et al. 2017). The seed is 0.
        operator: Name of the model's operator; empty for the operator that the experiment declares,
            and for classical methods.
        condition: Name of the condition of the test samples; empty for those of the experiment.
    """

    method: str | Trained
    seed: int = 0
    at: float | None = None
    assumed_level: float = 1.0
    corrected: bool = False
    together: bool = False
    operator: str = ""
    condition: str = ""

    @property
    def name(self) -> str:
        """Name of the method, without its operator and the unit of levels."""
        return self.named()

    def named(self, unit: str = "") -> str:
        """Name of the method in reports, without its operator. `unit` is that of noise levels."""
        level = self.method
        name = level if isinstance(level, str) else f"trained at {word(level, unit)}"
        name += ", corrected" if self.corrected else ""
        name += ", all seeds together" if self.together else ""
        factor = f", assuming {self.assumed_level:g} times the level"
        return name if self.assumed_level == 1 else f"{name}{factor}"


def key(level: Trained) -> str:
    """Text for a level, or for the ends of a range, in file names."""
    return f"{level[0]:g}-to-{level[1]:g}" if isinstance(level, tuple) else f"{level:g}"


def word(level: Trained, unit: str = "") -> str:
    """Text for a level in reports. A study has at most one range, which is called "all levels".

    >>> word(0.1), word(40.0, "dB"), word((0.0, 0.1))
    ('0.1', '40 dB', 'all levels')
    """
    return "all levels" if isinstance(level, tuple) else f"{level:g} {unit}".strip()


def parse_trained(text: str, tested: tuple[float, ...]) -> tuple[Trained, ...]:
    """Parse the noise levels to train at. The word ALL stands for a range, NONE for no training.

    The range is the smallest that contains all other levels to train at and all levels in `tested`.

    >>> parse_trained("0.01,all", (0.0, 0.1))
    (0.01, (0.0, 0.1))
    """
    if text == NONE:
        return ()
    words = [word.strip() for word in text.split(",")]
    single = [word for word in words if word != ALL]
    numbers = parse_levels(",".join(single)) if single else ()
    every = (*numbers, *tested)
    levels = iter(numbers)
    return tuple((min(every), max(every)) if word == ALL else next(levels) for word in words)


def parse_levels(text: str) -> tuple[float, ...]:
    """Parse noise levels separated by commas.

    >>> parse_levels("0,0.01,0.1")
    (0.0, 0.01, 0.1)
    """
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise SchemaError(f"levels must be numbers separated by commas, got {text!r}") from None


def check_levels(name: str, levels: Sequence[Trained]) -> None:
    """Raise SchemaError if two levels have the same file name, or there is more than one range."""
    if not levels or len(set(map(key, levels))) < len(levels):
        raise SchemaError(f"{name} levels must be one or more different numbers, got {levels}")
    if sum(isinstance(level, tuple) for level in levels) > 1:
        raise SchemaError(f"{name} levels may contain only one range, got {levels}")


def check_noise(
    told: InputNoise, tested: InputNoise, condition: StudyCondition, where: str
) -> None:
    """Raise SchemaError unless methods that are told one noise can be tested with the other.

    Methods know which points have a sensor, and a level in decibels is no share of σ(x).
    """
    keys = condition.noise.keys() - {"level"}
    if "sensors" in (told.kind, tested.kind) and keys:
        raise SchemaError(
            f"{where}: methods know the points of the sensors: only the level can differ, got "
            f"{', '.join(sorted(keys))}"
        )
    if (told.kind == "snr") != (tested.kind == "snr") and "level" not in condition.noise:
        raise SchemaError(
            f"{where}: levels of {told.kind} and {tested.kind} noise have different units: set "
            "its level too"
        )


def check_classical(
    inversion_samples: int,
    assumed_levels: tuple[float, ...],
    cells: int | None,
    only: Sequence[str] = (),
) -> None:
    """Raise SchemaError if classical methods cannot be tested with these options."""
    if NONE in only and (len(only) > 1 or cells is not None):
        raise SchemaError("--method none excludes other methods and --cells")
    if cells is not None and cells < _LEAST:
        raise SchemaError(f"--cells must be at least {_LEAST}, got {cells}")
    if inversion_samples < 1:
        raise SchemaError(f"--inversion-samples must be at least 1, got {inversion_samples}")
    if 1.0 not in assumed_levels or not all(1e-6 <= factor <= 1e6 for factor in assumed_levels):
        raise SchemaError(
            f"--assumed-level must be numbers from 1e-6 to 1e6 that include 1, got {assumed_levels}"
        )
    if len({f"{factor:g}" for factor in assumed_levels}) < len(assumed_levels):
        raise SchemaError(
            f"--assumed-level must be numbers that differ in six digits, got {assumed_levels}"
        )


_LISTED = {"training.seed": "--seeds", "noise.level": "--train-levels and --test-levels"}
_SHARED = ("data", "noise", "task")  # tables that all operators of a study have in common


def operator_experiments(
    experiment: Experiment,
    models: Sequence[str],
    overrides: Mapping[str, Any],
    store: str | None = None,
) -> tuple[Experiment, tuple[Experiment, ...]]:
    """The experiment of a study, and the experiments of its operators if several are named.

    The operator that the experiment declares keeps its settings. The others have their default
    settings.

    Args:
        experiment: The experiment, to which no override has been applied.
        models: Names of the operators; if there are none, that of the experiment.
        overrides: Values of keys. A key that begins with the name of an operator and a dot, such
            as "fno.width", is a key of this operator's experiment. Other keys are keys of all,
            and those of a model are keys of the operator that the experiment declares.
        store: The store of the study, see `Experiment.on`.

    Raises:
        SchemaError: If an operator is unknown or named twice. Also if a key is unknown, belongs to
            an operator that is not named, or changes the data or the noise for one operator alone.
            Also for the seed and the noise level, because options of the study list their values.
            The level may be set if the experiment has no noise, and thus adds it.
    """
    overrides = flattened(overrides)
    for key in overrides:
        name, _, rest = key.partition(".")
        _check_key(experiment, rest if name in models else key)
    if not models:
        return experiment.on(store, overrides), ()
    for name in models:
        parse_model({"name": name})  # raises for an unknown operator
    if len({*models}) < len(models):
        raise SchemaError(f"--model names an operator twice: {', '.join(models)}")
    by_operator = {name: dict[str, Any]() for name in models}
    common = dict[str, Any]()
    for key, value in overrides.items():
        name, dot, rest = key.partition(".")
        if dot and name in by_operator:
            by_operator[name][rest] = value
        elif experiment.model.name not in by_operator and _is_of_model(experiment, key):
            last = key.removeprefix("model.")
            raise SchemaError(
                f"--set {key} is a key of {experiment.model.name}, which --model does not name: "
                f"write {' or '.join(f'{name}.{last}' for name in models)}"
            )
        else:
            common[key] = value
    shared = experiment.on(store, common)
    variants = dict[str, Experiment]()
    for name, changes in by_operator.items():
        variant = shared
        if name != shared.model.name:
            variant = shared.with_overrides({"model.name": name})
        variants[name] = variant.with_overrides(changes) if changes else variant
    for name, variant in variants.items():
        check_alike(shared, variant, name)
    return variants.get(experiment.model.name, shared), tuple(variants.values())


def _check_key(experiment: Experiment, key: str) -> None:
    """Raise SchemaError for a key whose values the study lists."""
    for listed, option in _LISTED.items():
        if listed == "noise.level" and experiment.noise is None:
            continue
        if f".{listed}".endswith(f".{key}") and experiment.resolved_key(key, {}) == listed:
            raise SchemaError(f"{listed} cannot be set, a study has several: use {option}")


def _is_of_model(experiment: Experiment, key: str) -> bool:
    """Whether a key is one of the operator."""
    if key.startswith(("data.", "noise", "task", "conditions.")):
        return False
    return experiment.resolved_key(key, {}).partition(".")[0] == "model"


def check_operators(experiment: Experiment, operators: Sequence[Experiment]) -> None:
    """Raise SchemaError if operators of a study have the same name, or other data or noise."""
    names = [variant.model.name for variant in operators]
    if len({*names}) < len(names):
        raise SchemaError(f"a study has each operator once, got {', '.join(names)}")
    for variant in operators:
        check_alike(experiment, variant, variant.model.name)
        if variant.model.name == experiment.model.name and variant != experiment:
            raise SchemaError(f"{variant.model.name} differs from the operator of the experiment")


def check_alike(experiment: Experiment, variant: Experiment, name: str) -> None:
    """Raise SchemaError if the experiments differ in the data, the noise or the task."""
    for table in _SHARED:
        if getattr(experiment, table) != getattr(variant, table):
            raise SchemaError(
                f"operators of a study share the {table}, those of {name} differ: "
                f"set keys of {table} without the name of an operator"
            )


def recorded_study(folder: Path) -> dict[str, Any]:
    """The content of study.json; empty if the file is absent or damaged."""
    try:
        return read_json(folder / "study.json")
    except (FileNotFoundError, DamagedError):
        return {}


@dataclass(frozen=True)
class NoisePlan:
    """The trainings and tests of a noise study, without classical methods.

    If the noise is on the inputs, models are trained and tested at several noise levels. If it is
    on the targets, models are trained with noisy targets, and tested on targets without noise.

    Args:
        experiment: Declares the data and the noise. Its operator is the only one of the study
            unless `operators` are given.
        train_levels: Noise levels or ranges at which models are trained; none for classical
            methods alone. With a range, each sample gets a random level in this range, and the
            level is an input of the model.
        test_levels: Noise levels of the inputs of the test samples; 0 alone if the noise is on the
            targets.
        inversion_samples: Largest number of test samples on which classical methods are tested.
        assumed_levels: Noise levels that classical methods, and models trained on a range, assume.
            Levels are given as multiples of the true level, and include 1.
        only: Names of the classical methods to test; by default all that the equation offers. The
            name `noise_cells.NONE` alone stands for no method.
        conditions: Conditions under which all methods are tested besides, by name. Methods are
            told the recipe and the noise of the experiment.
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
    conditions: Mapping[str, StudyCondition] = field(default_factory=dict)
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
            if levels or name == "test":
                check_levels(name, levels)
        for model in self.models:
            self.training(model)  # raises if this level cannot be trained
        if not self.train_levels and (self.on_targets or self.operators or self.only == (NONE,)):
            raise SchemaError(
                "--train-levels none leaves classical methods alone: it excludes --model, "
                "--method none and noise on the targets"
            )
        if not self.train_levels and self.experiment.training.conformal:
            raise SchemaError(
                "training.conformal is for operators, --train-levels none trains none"
            )
        if self.seeds < 1:
            raise SchemaError(f"seeds must be at least 1, got {self.seeds}")
        check_classical(self.inversion_samples, self.assumed_levels, self.cells, self.only)
        self._check_conditions()

    def _check_conditions(self) -> None:
        """Raise SchemaError if methods cannot be tested under a condition."""
        files = {name.replace(" ", "-").casefold() for name in self.conditions}
        if len(files) < len(self.conditions):
            raise SchemaError(f"conditions need different names, got {', '.join(self.conditions)}")
        for name in self.conditions:
            if len(name.encode()) > _CONDITION_BYTES:
                raise SchemaError(
                    f"conditions: a name has at most {_CONDITION_BYTES} bytes, got {brief(name)}"
                )
        for name, condition in self.conditions.items():
            where = f"conditions.{name}.noise"
            noises = [(self.noise(level), self.tested(level, name)) for level in self.test_levels]
            for told, tested in noises:
                check_noise(told, tested, condition, where)
            if not condition.truth and all(n.tested({}, where) == tested for n, tested in noises):
                raise SchemaError(f"{where}: methods are told this noise: leave the condition out")

    def _check_targets(self) -> None:
        """Raise SchemaError for options that need noise on the inputs."""
        options = {
            "--test-levels": self.test_levels != (0.0,),
            "--condition": bool(self.conditions),
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

    def tested(self, level: float, condition: str = "") -> InputNoise:
        """The noise on the test samples at a given level, under a condition."""
        noise = self.noise(level)
        if not (condition and self.conditions[condition].noise):
            return noise
        return noise.tested(self.conditions[condition].noise, f"conditions.{condition}.noise")

    @cached_property
    def experiments(self) -> dict[str, Experiment]:
        """The experiment of each operator."""
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

    @property
    def noisiest(self) -> float:
        """The test level with the most noise: in decibels, the smallest."""
        return (min if self.unit else max)(self.test_levels)

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


TUNED_ON = 16  # validation samples that choose the weight of a classical inversion
KNOWN = 200  # largest number of training samples that a classical inversion uses
_INVERSE = [["u"], ["a"]]  # inputs and targets of an inverse problem
_TIMED = 5  # solves whose time is measured


@dataclass(frozen=True)
class Inverted:
    """Estimates of a classical inversion method, one for each sample.

    Args:
        seconds: Processor time per sample. Samples are inverted one after another.
    """

    estimates: tuple[Estimate, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def solves(self) -> float:
        """Mean number of systems of equations that the method solved per sample."""
        return float(np.mean([estimate.solves for estimate in self.estimates]))

    @property
    def iterations(self) -> float:
        """Mean number of steps per sample."""
        return float(np.mean([estimate.iterations for estimate in self.estimates]))

    @property
    def converged(self) -> int:
        """Number of samples whose steps ended by the method's criterion."""
        return sum(estimate.converged for estimate in self.estimates)

    def fields(self, cells: int) -> Float[np.ndarray, " samples *cells"]:
        """The estimates, averaged on `cells` cells along each axis."""
        return np.stack([on_cells(estimate.a, cells) for estimate in self.estimates])


@dataclass(frozen=True)
class ChosenWeight:
    """The choice of a method's regularisation weight.

    Args:
        samples: Number of validation samples; 0 if the method has only one weight.
        at_end: Whether the weight is the smallest or the largest of several.
        unconverged: Number of inversions for this choice, over all weights tried, that did not end
            by the method's criterion.
    """

    weight: float
    samples: int = 0
    at_end: bool = False
    unconverged: int = 0


@dataclass(frozen=True)
class Observed:
    """Data for a classical inversion: values at the data points, and the assumed laws of their
    noise, one for each sample.
    """

    values: Float[np.ndarray, " samples *data"]
    laws: Sequence[NoiseLaw]

    @property
    def std(self) -> Float[np.ndarray, " samples *data"]:
        """Standard deviation of the noise at each point."""
        return np.stack([law.std for law in self.laws])

    @property
    def stated(self) -> Sequence[NoiseLaw | Float[np.ndarray, " *data"]]:
        """What methods get of the noise: its deviation, or its law if that says more."""
        return [law.stated for law in self.laws]

    def only(self, row: int) -> Observed:
        """The data of one sample."""
        return Observed(self.values[row : row + 1], self.laws[row : row + 1])


@dataclass(frozen=True)
class Inversions:
    """Classical inversions of noisy inputs.

    Args:
        only: Names of the methods to use; by default all methods that the equation offers.
        cells: Number of cells along each axis on which the target is reconstructed; by default the
            number of data points. In stores without cells, the target is reconstructed at the
            points of the data.
    """

    source: Source
    only: tuple[str, ...] = ()
    cells: int | None = None

    @cached_property
    def setting(self) -> InverseProblem:
        """The data points, and the training samples that methods may use."""
        count = min(KNOWN, len(self.source.stored("train")))
        training = self._on_cells({"data.samples": count}).samples("train", noise=None).resident()
        x = training.points.flatten(1, -2)[:, 0, 0] if training.dim > 1 else training.points[:, 0]
        a, u = (values[..., 0].double().numpy() for values in (training.u, training.a))
        return InverseProblem(x.double().numpy(), a, u, self.seen(u.shape[1:]))

    def seen(self, shape: tuple[int, ...]) -> Bool[np.ndarray, "..."] | None:
        """Mask of the points that have a sensor; None if all points have a sensor."""
        noise = self.source.experiment.noise
        model = None if noise is None else noise.build()
        if noise is None or not isinstance(model, SensorNoise):
            return None
        return model.observed(shape, noise.seed)

    def _on_cells(self, overrides: Mapping[str, object]) -> Source:
        experiment, changed = self.source.experiment, {**overrides}
        if set(domain_of(open_sealed(self.source.url)).kinds) == {"cell"}:
            changed["data.target_resolution"] = self.cells or experiment.data.finest_resolution
        elif self.cells is not None:
            raise SchemaError(f"cells: {self.source.url} holds no averages over cells")
        return Source(self.source.url, experiment.with_overrides(changed))

    def truth(self, tests: str | None = None) -> Float[np.ndarray, "samples n n"]:
        """Targets of the test samples, of the store or of another store of tests, on the cells on
        which classical methods reconstruct them."""
        source = replace(self._on_cells({}), tests=tests)
        return source.samples("test", noise=None).resident().u[..., 0].double().numpy()

    @cached_property
    def _problem(self) -> Problem:
        """The equation of the store. Raises SchemaError if it is not that of its fingerprint."""
        store = open_sealed(self.source.url)
        if store.command == "generate":
            return RecipeJob.of(store).recipe.problem
        problem = Recipe.parse(store.raw_attributes["recipe"], self.source.url).problem
        recorded = store.metadata.equation_file is not None
        if recorded and (fault := other_equation(problem, store)):
            raise SchemaError(f"{self.source.url}: {fault}")
        return problem

    @property
    def equation_digest(self) -> str | None:
        """SHA-256 of the user's file that defines the inverted equation; None without one."""
        file = None if self.unsuited else plugin_of(type(self._problem))
        return None if file is None else file.digest

    @cached_property
    def unsuited(self) -> str:
        """The reason why the data do not suit classical methods; empty if they do."""
        store = open_sealed(self.source.url)
        domain = domain_of(store)
        if reason := no_inverse_problem(self.source.experiment, domain):
            return reason
        if not store.metadata.recipe.problem:
            return (
                f"{self.source.url} has no recipe, and classical methods need the distribution "
                "of the target"
            )
        return ""

    @cached_property
    def methods(self) -> dict[str, ClassicalMethod]:
        """The methods to use, keyed by name."""
        return self._choice[0]

    @property
    def absent(self) -> str:
        """Why there is no classical method; empty if there is one, or if none is wanted."""
        return self._choice[1]

    @cached_property
    def _choice(self) -> tuple[dict[str, ClassicalMethod], str]:
        if self.only == (NONE,):
            return {}, ""
        if self.unsuited:
            return none_offered(self.unsuited, self.only, self.cells)
        return chosen(self._problem, self.setting, self.only, self.cells)

    @property
    def corrector(self) -> str | None:
        """Name of the first method that can start from a prediction; None if no method can."""
        names = (name for name, m in self.methods.items() if m.correction is not None)
        return next(names, None)

    def data(
        self, pairs: Samples, noise: InputNoise, assumed_level: float, samples: int
    ) -> Observed:
        """Data for the inversion of the first `samples` samples.

        Args:
            noise: The noise whose kind and level the methods assume.
            assumed_level: Factor that multiplies the assumed standard deviation of the noise.
        """
        setting, model = self.setting, noise.build()
        values = pairs.a[:samples, ..., 0].double().numpy()
        spread, points = self.source.std(pairs), pairs.domain.points
        laws = [model.law(d, setting.u, spread, points).scaled(assumed_level) for d in values]
        if setting.sensors is None:
            return Observed(values, laws)
        return Observed(values[:, setting.sensors], [law.at(setting.sensors) for law in laws])

    def invert(self, name: str, weight: float, data: Observed) -> Inverted:
        return inverted(self.methods[name], weight, data)

    def correct(self, data: Observed, answers: np.ndarray) -> Inverted:
        """Estimates by the method `corrector`, which starts from the predictions of a model."""
        assert self.corrector is not None
        correction = self.methods[self.corrector].correction
        assert correction is not None
        return _timed(correction, data.values, data.stated, answers)

    def choice(
        self, name: str, data: Observed, known: Float[np.ndarray, " samples *m"]
    ) -> ChosenWeight:
        return chosen_weight(self.methods[name], data, known)

    def misfits(
        self, data: Observed, fields: Sequence[Float[np.ndarray, "n n"]]
    ) -> Float[np.ndarray, " samples"] | None:
        """Root mean square of (d - H u(a))/σ for each field a, with the data d and the deviations σ
        of their noise. H restricts the solution u(a) to the data points.

        The solver of the recipe computes u(a). The result is None if there is no noise, or if the
        equation states no map to the data.
        """
        if self._forward is None or not np.all(data.std > 0):
            return None
        solved = np.stack([self._forward(a) for a in fields])
        if self.setting.sensors is not None:
            solved = solved[:, self.setting.sensors]
        observations = [law.observation for law in data.laws]
        solved = np.stack(
            [u if by is None else by(u) for u, by in zip(solved, observations, strict=True)]
        )
        squares = ((data.values - solved) / data.std) ** 2
        present = np.array([law.present for law in data.laws])
        return np.sqrt(squares.reshape(len(fields), -1).mean(axis=1) / present)

    @property
    def has_forward(self) -> bool:
        """Whether the equation states the map from the target to the data."""
        return self._forward is not None

    @cached_property
    def _forward(self) -> Forward | None:
        return None if self.unsuited else self._problem.forward(self.setting.x)

    @cached_property
    def solve_seconds(self) -> float:
        """Processor time of the recipe's solver per sample; 0 if the equation has no solver."""
        if self._forward is None:
            return 0.0
        self._forward(self.setting.a[0])  # compiles
        start, few = process_time(), self.setting.a[:_TIMED]
        for a in few:
            self._forward(a)
        return (process_time() - start) / len(few)


def inverted(method: ClassicalMethod, weight: float, data: Observed) -> Inverted:
    """Estimates of a method with a regularisation weight."""
    return _timed(method.with_weight(weight), data.values, data.stated)


def chosen_weight(
    method: ClassicalMethod, data: Observed, known: Float[np.ndarray, " samples *m"]
) -> ChosenWeight:
    """The regularisation weight of a method with the smallest mean error on samples with known
    targets.

    The search starts in the middle of the weights and goes on to the neighbour with the smaller
    error until none has a smaller one. If the method has only one weight, the samples are not used.
    """
    weights, unconverged = method.weights, 0
    if len(weights) == 1:
        return ChosenWeight(weights[0])

    @cache
    def mean_error(at: int) -> float:
        nonlocal unconverged
        estimates = inverted(method, weights[at], data)
        unconverged += len(estimates) - estimates.converged
        found, true = map(torch.from_numpy, (estimates.fields(known.shape[1]), known))
        errors = relative_error(found, true)[:, 0]
        failed = errors.isnan() & true.flatten(1).any(dim=1)
        return mean_defined(errors.masked_fill(failed, math.inf))

    best, at = -1, len(weights) // 2
    while at != best:
        best = at
        at = min((best, max(best - 1, 0), min(best + 1, len(weights) - 1)), key=mean_error)
    return ChosenWeight(weights[best], len(known), best in (0, len(weights) - 1), unconverged)


def no_inverse_problem(experiment: Experiment, domain: Domain) -> str:
    """The reason why classical methods cannot solve an experiment; empty if they can."""
    if [[name] if isinstance(name, str) else name for name in experiment.variables] != _INVERSE:
        return f"{experiment.name} does not learn u -> a"
    if experiment.noise is not None and experiment.noise.on != "inputs":
        return "they invert noisy inputs, not noisy targets"
    if not isinstance(domain, Box):
        return f"they need points on a grid, got a {domain.kind}"
    return ""


def chosen(
    problem: Problem, setting: InverseProblem, only: Sequence[str], cells: int | None = None
) -> tuple[dict[str, ClassicalMethod], str]:
    """The methods that an equation offers, or those of the names `only`; and why there is none.

    Raises SchemaError if a requested method is not offered.
    """
    try:
        offered = problem.inversions(setting)
    except SchemaError as refusal:
        return none_offered(str(refusal), only, cells)
    for name in only:
        if name not in offered:
            known = ", ".join(map(repr, (*offered, NONE)))
            raise SchemaError(f"unknown method {name!r}: known: {known}")
    return {name: offered[name] for name in only or offered}, ""


def none_offered(
    reason: str, only: Sequence[str], cells: int | None
) -> tuple[dict[str, ClassicalMethod], str]:
    """No method, with the reason. Raises SchemaError if methods, or their cells, are requested."""
    requested = f"--method {only[0]!r}" if only else "--cells" if cells is not None else ""
    if requested:
        raise SchemaError(f"{requested}: there are no classical methods: {reason}")
    return {}, reason


def check_methods(experiment: Experiment, only: tuple[str, ...], cells: int | None) -> None:
    """Raise SchemaError if the recipe of an experiment does not offer a requested method.

    Nothing is generated: the equation names its methods for a setting without samples.
    """
    if only == (NONE,):
        return
    problem, data = experiment.data.load_recipe().problem, experiment.data
    if reason := no_inverse_problem(experiment, problem.domain):
        none_offered(reason, only, cells)
        return
    assert isinstance(problem.domain, Box)
    averaged = problem.domain.grid == "cell"
    if cells is not None and not averaged:
        raise SchemaError(f"--cells: recipe {data.recipe} holds no averages over cells")
    estimated = cells or data.finest_resolution
    where = f"recipe {data.recipe}"
    subsample = Subsample.of(
        problem.domain, data.finest_resolution, estimated if averaged else None, where
    )
    x = subsample.domain.grids[0].x if isinstance(subsample.domain, Box) else np.empty(0)
    a, u = (np.empty((0, *[n] * problem.domain.dim)) for n in (estimated, data.finest_resolution))
    chosen(problem, InverseProblem(x, a, u), only, cells)


def on_cells(a: Float[np.ndarray, " *cells"], cells: int) -> Float[np.ndarray, " *fewer"]:
    """Averages of `a` over coarser cells, with `cells` cells along each axis."""
    weights = averaging_weights(len(a), cells)
    for axis in range(a.ndim):
        a = np.moveaxis(np.tensordot(weights, a, axes=(1, axis)), 0, axis)
    return a


def _timed(invert: Callable[..., Estimate], *arguments: Sequence[Any] | np.ndarray) -> Inverted:
    samples = list(zip(*arguments, strict=True))
    invert(*samples[0])  # computes what all samples share
    start = process_time()
    estimates = tuple(invert(*sample) for sample in samples)
    return Inverted(estimates, (process_time() - start) / len(estimates))
