"""The base class of the problems that recipes declare."""

from __future__ import annotations

import math
import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from itertools import pairwise
from pathlib import Path
from threading import Lock, RLock
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, get_args

import numpy as np
import psutil
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, SchemaValidator, core_schema

from pdegen.checks.check import ROUNDING, InputStatistic, StoreChecks, checks_of_family
from pdegen.domains import Domain
from pdegen.inverse.classical import ClassicalMethod, Forward, InverseProblem
from pdegen.inverse.tikhonov import by_forward
from pdegen.numerics.device import (
    Array,
    constant,
    first_true,
    one_thread,
    samples_at_once,
    to_numpy,
    torch,
)
from pdegen.numerics.elliptic import EllipticSystem
from pdegen.numerics.errors import SolveError
from pdegen.plugins import PluginFile, Registry, describe_conflict, module_of, plugin_of
from pdegen.sampling.scalars import ScalarLaw, corners, laws_of, variable_names, with_numbers
from pdegen.schema import (
    Count,
    NonNegative,
    Positive,
    SchemaError,
    Strict,
    brief,
    explained,
    known_keys,
)
from pdegen.software import versions
from pdegen.store.format import ParameterLaw, Physics
from pdegen.store.layout import Coordinate, Variable, scalar

# Guaranteed error bounds of predictions.


class Guarantee(ABC):
    """Error bounds of predicted functions.

    Predictions and inputs are arrays of shape (batch, *grid), with values at all points of a store.
    """

    sentences: ClassVar[Mapping[str, str]]
    """The norm of the error that each bound is above, by the name of the bound."""

    headline: ClassVar[str]
    """The name of the bound that reports show first."""

    @abstractmethod
    def bounds(self, inputs: Mapping[str, np.ndarray], p: np.ndarray) -> dict[str, np.ndarray]:
        """A dictionary from the keys of `sentences` to error bounds, one for each prediction.

        Raises SolveError if a sample has no bound, for example if a value is not finite.
        """


# Numbers of an equation that differ from sample to sample by a law.


class WithLaws(Strict):
    """A declaration whose numbers may be laws (`pdegen.sampling.scalars`)."""

    @model_validator(mode="after")
    def _every_number_fits(self) -> Self:
        """Validate the problem at all corners of the ranges of its laws."""
        for numbers in corners(self.laws):
            if numbers:
                content = with_numbers(self, numbers).model_dump()
                try:
                    type(self).model_validate(content)
                except ValidationError as error:
                    at = ", ".join(f"{key} = {value:g}" for key, value in numbers.items())
                    raise ValueError(f"at {at}: {explained(error, type(self), content)}") from None
        return self

    @property
    def laws(self) -> dict[str, ScalarLaw]:
        """The laws of the numbers that differ from sample to sample, by dotted keys."""
        return laws_of(self)

    @property
    def parameter_names(self) -> dict[str, str]:
        """The names of the variables that contain these numbers, by dotted keys."""
        return variable_names(list(self.laws))

    def parameters(self) -> tuple[Variable, ...]:
        """The variables that contain these numbers; `variables` includes them.

        >>> from pdegen.recipe import load_recipe
        >>> law = {"law": "uniform", "low": 0.1, "high": 0.2}
        >>> burgers = load_recipe("burgers-quick").with_overrides({"viscosity": law}).problem
        >>> [variable.name for variable in burgers.parameters()]
        ['viscosity']
        """
        names = self.parameter_names
        return tuple(
            scalar(names[key], "parameter", f"{key} of the sample, {law.sentence}")
            for key, law in self.laws.items()
        )

    def constants(self, *keys: str) -> dict[str, Any]:
        """The values of those keys that are the same for all samples, for attributes in stores."""
        return {key: getattr(self, key) for key in keys if key not in self.laws}

    def parameter_values(
        self, seed: int, samples: Sequence[int]
    ) -> dict[str, Float[np.ndarray, " batch"]]:
        """The numbers that differ from sample to sample, by dotted keys."""
        return {key: law.values(key, seed, samples) for key, law in self.laws.items()}

    def of_sample(self, seed: int, sample: int) -> Self:
        """The problem of one sample, in which numbers take the place of laws."""
        values = self.parameter_values(seed, [sample])
        return with_numbers(self, {key: float(value[0]) for key, value in values.items()})

    @property
    def typical(self) -> Self:
        """The problem with the median of each law in place of the law."""
        return with_numbers(self, {key: law.at(0.5) for key, law in self.laws.items()})

    @property
    def laws_by_variable(self) -> dict[str, ScalarLaw]:
        """The laws of these numbers, by the names of their variables."""
        names = self.parameter_names
        return {names[key]: law for key, law in self.laws.items()}

    @property
    def parameter_laws(self) -> dict[str, ParameterLaw]:
        """The descriptions of `laws_by_variable` in a store; `physics` includes them."""
        laws = self.laws_by_variable
        return {name: ParameterLaw(law.kind, law.low, law.high) for name, law in laws.items()}

    def refuse_laws(self, what: str) -> None:
        """Raise SchemaError if a number differs from sample to sample; `what` needs one number."""
        for key, law in self.laws.items():
            raise SchemaError(f"{what} one {key} for all samples, here it is {law.sentence}")


# The registry of equations: those of the project, of installed packages and of a user's files.


GROUP = "pdegen.equations"  # of entry points
_SHIPPED = Path(__file__).parent  # the folder of the project's equations
_P = TypeVar("_P", bound="type[Problem]")
_registered: dict[str, type[Problem]] = {}
REGISTRIES: dict[str, Registry] = {"equation": _registered}
_lock = RLock()


def equation(problem: _P) -> _P:
    """Registers a problem under the name that its field `equation` accepts.

    Raises:
        SchemaError: If the problem has no such field, if it lacks a member, or if another problem
            has the name.

    >>> from pdegen.equations.burgers.problem import Burgers
    >>> equation(Burgers) is find("burgers")
    True
    """
    name, module = equation_name_of(problem), problem.__module__
    if lacking := sorted(problem.__abstractmethods__):
        raise SchemaError(
            f"{problem.__qualname__} lacks {', '.join(lacking)}: an equation must define "
            f"{'them' if len(lacking) > 1 else 'it'}"
        )
    with _lock:
        if name not in _registered and _is_shipped(name):
            import_module(_module(name))
        earlier = _registered.get(name)
        if earlier is not None and earlier.__module__ != module:
            raise SchemaError(describe_conflict("equation", name, earlier))
        _registered[name] = problem
        known_keys.cache_clear()  # recipes may have the keys of the equation from now on
    return problem


def equation_name_of(problem: type[Problem]) -> str:
    """The name of a problem's equation in recipes.

    Raises SchemaError if the field `equation` does not accept exactly one string.
    """
    field = problem.model_fields.get("equation")
    literals = get_args(field.annotation) if field is not None else ()
    if len(literals) != 1 or not isinstance(literals[0], str):
        raise SchemaError(
            f'{problem.__qualname__} needs the field equation: Literal["name"], its name in recipes'
        )
    return literals[0]


def names() -> list[str]:
    """Names of all equations that recipes may use in this process."""
    installed = _installed(*sys.path).names
    return list(dict.fromkeys([*_shipped(), *_registered, *sorted(installed)]))


def find(name: str) -> type[Problem] | None:
    """The problem class of the equation with this name; None if the name is unknown.

    Raises SchemaError if an installed package declares the equation but cannot be loaded or does
    not register it.
    """
    if name not in _registered and _is_shipped(name):
        import_module(_module(name))
    elif name not in _registered:
        for point in _installed(*sys.path).select(name=name):
            try:
                point.load()
            except Exception as error:  # raised by code outside the project
                first_line = str(error).partition("\n")[0]
                raise SchemaError(f"equation {name} of {point.value}: {first_line}") from error
            if name not in _registered:
                raise SchemaError(f"equation {name}: {point.value} does not register it")
    return _registered.get(name)


def registered_problems() -> tuple[type[Problem], ...]:
    """The problems of the project, and those that packages and files have registered so far."""
    # `names` would read the entry points of every installed package
    shipped = _shipped()
    for name in shipped:
        find(name)
    ordered = dict.fromkeys([*shipped, *_registered])
    return tuple(_registered[name] for name in ordered if name in _registered)


def _shipped() -> list[str]:
    """Names of the equations of the project."""
    packages = (m.name for m in pkgutil.iter_modules([str(_SHIPPED)]) if m.ispkg)
    return sorted(name.replace("_", "-") for name in packages)


@lru_cache(maxsize=1)
def _installed(*path: str) -> EntryPoints:
    """Entry points of the group `pdegen.equations`, for the folders of `sys.path`."""
    return entry_points(group=GROUP)


def _module(name: str) -> str:
    return f"{__package__}.{name.replace('-', '_')}.problem"


def _is_shipped(name: str) -> bool:
    package = name.replace("-", "_")
    return package.isidentifier() and (_SHIPPED / package / "problem.py").is_file()


class RegisteredProblem:
    """Annotation of a Pydantic field whose value is a problem of any registered equation."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(problem_from_table)


def problem_from_table(content: object) -> Problem:
    """The problem that a table declares by its key `equation`.

    Raises ValidationError if the equation is missing or unknown, or if a value is invalid.
    """
    if not isinstance(content, Mapping):
        if type(content) in _registered.values():
            return cast(Problem, content)
        raise _refused({"type": "dict_type", "input": content})
    table = cast(Mapping[str, object], content)
    name = table.get("equation")
    problem = find(name) if isinstance(name, str) else None
    if problem is not None:
        return _validator(problem).validate_python(content)
    fault = "is missing" if "equation" not in table else f"unknown {brief(name)}"
    hint = f"{fault}, known: {', '.join(names())}; one of your own needs --plugin FILE.py"
    raise _refused(
        {
            "type": "value_error",
            "loc": ("equation",),
            "input": name,
            "ctx": {"error": ValueError(hint)},
        }
    )


@cache
def _validator(problem: type[Problem]) -> SchemaValidator:
    """A validator whose errors name the equation, like the errors of a tagged union."""
    choice = core_schema.no_info_plain_validator_function(problem.model_validate)
    return SchemaValidator(
        core_schema.tagged_union_schema({equation_name_of(problem): choice}, "equation")
    )


def _refused(*errors: InitErrorDetails) -> ValidationError:
    return ValidationError.from_exception_data("Problem", list(errors))


# Times and time steps in the declarations of evolution equations.


_MOST_STEPS = 10**7  # of a trajectory with the largest step: an hour on the smallest grids


def _increasing(times: tuple[float, ...]) -> tuple[float, ...]:
    """In increasing order."""  # `pdegen keys` prints this line
    if not all(a < b for a, b in pairwise(times)):
        raise ValueError(f"must increase, got {brief(list(times))}")
    return times


_List = (Field(min_length=1, strict=False), AfterValidator(_increasing))
Times = Annotated[tuple[Positive, ...], *_List]
TimesFromStart = Annotated[tuple[NonNegative, ...], *_List]


def checked_times(t: float | Sequence[float]) -> list[float]:
    """One or several times as a list.

    Raises ValueError if a time is negative or not finite, or if the times decrease.
    """
    times = [float(s) for s in np.atleast_1d(t)]
    if not all(np.isfinite(times)) or any(s < 0 for s in times) or times != sorted(times):
        raise ValueError(f"times must be >= 0 and must not decrease, got {t}")
    return times


def squeeze_single_time(u: Array) -> Array:
    """Values of shape (batch, times, ...), without the axis of times if there is one time only."""
    return u[:, 0] if u.shape[1] == 1 else u


def check_divides(resolution: int, solving: int) -> None:
    """Refuse a resolution of the output whose points are not points of the solver.

    Raises:
        ValueError: If the resolution is refused; the message has the nearest allowed ones.

    >>> check_divides(384, 2048)
    Traceback (most recent call last):
    ValueError: resolution must divide solver.resolution = 2048, for example 256 or 512, got 384
    """
    if solving % resolution:
        allowed = [n for n in range(4, solving + 1, 2) if solving % n == 0]
        near = sorted(sorted(allowed, key=lambda n: abs(n - resolution))[:2])
        raise ValueError(
            f"resolution must divide solver.resolution = {solving}, for example "
            f"{' or '.join(map(str, near))}, got {resolution}"
        )


def check_steps(dt: float, times: tuple[float, ...]) -> None:
    """Refuse a largest time step if every interval is shorter, or if it needs too many steps.

    Raises:
        ValueError: If the step is refused; the message has the limit for the step.
    """
    longest = max(np.diff(times, prepend=0.0))
    if dt > longest > 0:
        raise ValueError(
            f"solver.dt must be at most {longest:g}, the longest time between two of `times`, "
            f"got {dt:g}"
        )
    if times[-1] / dt > _MOST_STEPS:
        raise ValueError(
            f"solver.dt must be at least {times[-1] / _MOST_STEPS:.3g}: {dt:g} makes "
            f"{times[-1] / dt:.2g} steps, at most {_MOST_STEPS:,} are allowed"
        )


# A block may fill the memory of a device: one task computes on it while others copy and write.
_on_device = Lock()

_SMALLEST = 2.0**-126  # root mean square of a label; smallest normal number of float32


class SampleError(ArithmeticError):
    """A sample of a dataset could not be computed; the message has its number and the reason."""

    exit_status = 1

    def __init__(self, sample: int, reason: str) -> None:
        super().__init__(sample, reason)
        self.sample = sample
        self.reason = reason

    def __str__(self) -> str:
        return f"sample {self.sample}: {self.reason}"


class Problem(WithLaws):
    """An equation with the law of its random inputs, its resolution and its solver.

    Args:
        resolution: Points of the output along each axis.
    """

    # part of the fingerprint; increased when a change of code changes the values of a recipe
    algorithm: ClassVar[int] = 1
    # whether `solve` can use a device of PyTorch
    supports_device: ClassVar[bool] = False
    # keys that choose grids and methods, not the functions that are approximated
    discretization: ClassVar[tuple[str, ...]] = ("resolution", "solver")
    # number of first samples whose labels are compared with a reference solution
    compared_samples: ClassVar[int] = 0
    # largest number of samples that `solve` gets with NumPy; bounds the memory of its arrays
    largest_batch: ClassVar[int] = sys.maxsize
    # whether Numba compiles the solver for NumPy arrays
    compiled: ClassVar[bool] = False

    resolution: Count

    @classmethod
    def variants(cls) -> tuple[type[Strict], ...]:
        """The classes that a recipe may declare where this class is expected.

        For `Problem` itself these are all registered problems. For a subclass this is the subclass
        alone.
        """
        return registered_problems() if cls is Problem else (cls,)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles a problem, together with the user's file of its equation if there is one."""
        file = plugin_of(type(self))
        if file is None:
            return super().__reduce_ex__(protocol)
        return _unpickled, (file, type(self).__qualname__, self.model_dump())

    @property
    def equation_name(self) -> str:
        """The name of the equation in recipes."""
        return equation_name_of(type(self))

    @property
    @abstractmethod
    def formula(self) -> str:
        """The equation in one line."""

    @property
    def latex(self) -> str:
        """The equation in LaTeX (ASCII, amsmath), with the values of its constants."""
        return ""

    @abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """The variables that a store contains for every sample."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The domain of the functions, which gives the coordinates of space."""

    def coordinates(self) -> tuple[Coordinate, ...]:
        """Further coordinates that a store contains once, such as times.

        Every store also has the numbers of the samples and the coordinates of the domain.
        """
        return ()

    def physics(self) -> Physics:
        """Facts about the fields, for code that does not know the equation."""
        return Physics()

    def inversions(self, setting: InverseProblem) -> dict[str, ClassicalMethod]:
        """A dictionary from names to classical methods that estimate the input from noisy targets.

        `setting` contains the points of the data, and known pairs of inputs and targets. The
        methods estimate inputs on the same cells as the known inputs. It contains no pairs if only
        names of methods are needed. The default is Tikhonov's method for the map `forward`. Raises
        SchemaError, with the reason, if no method exists for the equation or the distribution of
        its inputs.
        """
        if forward := self.forward(setting.x):
            return by_forward(forward, setting)
        raise SchemaError(f"{self.equation_name} offers no classical inversions")

    def forward(self, x: Float[np.ndarray, " m"]) -> Forward | None:
        """The map from an input to the data of an inverse problem; None if there is no such map.

        The map solves the equation. The input may have any number of cells or points. The data are
        values of the target at the points x along each axis.
        """
        return None

    def guarantee(self, inputs: Sequence[str], target: str) -> Guarantee:
        """Guaranteed error bounds for predictions of the variable `target`.

        The predictions are computed from the variables `inputs`. Raises SchemaError, with the
        reason, if there are no such bounds.
        """
        raise SchemaError(f"{self.equation_name} offers no bound of errors")

    def system(self, inputs: Mapping[str, Array]) -> EllipticSystem | None:
        """The linear equations of the labels' scheme at the points of a store, for its inputs by
        name: arrays of NumPy or tensors of PyTorch, shape (batch, *grid). None if there are none.
        """
        return None

    def residual(
        self, inputs: Mapping[str, Array], prediction: Float[Array, "batch n n"]
    ) -> Float[Array, " batch"] | None:
        """Relative residual of predictions in the labels' scheme; None if there is none.

        It is 0 for the scheme's own solution and needs no labels (`EllipticSystem.residual`).
        """
        system = self.system(inputs)
        return None if system is None else system.residual(prediction)

    @abstractmethod
    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        """The values of these samples for each variable; sample i depends on (seed, i) alone.

        Args:
            seed: Seed of the dataset.
            samples: Numbers of the samples, at most `largest_batch`.
            device: The PyTorch device, such as "cuda", on which the values are computed and
                returned. None computes with NumPy. Both agree up to the solver's tolerance.

        Raises:
            SolveError: If a sample cannot be solved or is not finite; `row` is its index in
                `samples`.
            SampleError: In the same cases, with the number of the sample.
        """

    def solve_family(
        self, seed: int, samples: range, device: str | None = None
    ) -> dict[str, Array]:
        """The values of `solve` if numbers differ from sample to sample.

        The default solves the samples one by one. An equation may solve them together.
        """
        parts = list[dict[str, Array]]()
        for row, sample in enumerate(samples):
            try:
                problem = self.of_sample(seed, sample)
                parts.append(problem.solve(seed, range(sample, sample + 1), device))
            except SolveError as failure:
                raise SolveError(row, failure.reason) from failure
        xp = array_namespace(next(iter(parts[0].values())))
        return {name: xp.concat([part[name] for part in parts]) for name in parts[0]}

    def _check_parameters(self) -> None:
        """Raise SchemaError if an equation that accepts laws does not describe its parameters."""
        lacking = set(self.parameter_names.values()) - {v.name for v in self.variables()}
        if lacking or self.physics().parameters != self.parameter_laws:
            member, missing = ("variables()", "*self.parameters()")
            if not lacking:
                member, missing = ("physics()", "parameters=self.parameter_laws")
            raise SchemaError(f"{self.equation_name}: {member} lacks {missing}, which laws need")

    def solve_in_blocks(
        self, seed: int, samples: range, device: str | None = None
    ) -> dict[str, Array]:
        """The values of any number of samples, by calls of `solve` for blocks that fit into memory.

        Raises SampleError if a sample cannot be solved or is not finite.
        """
        size = self.largest_batch if device is None else samples_at_once(self.floats_per_sample)
        values = dict[str, Array]()
        for start in range(0, len(samples), size):
            block = samples[start : start + size]
            try:
                if self.laws:
                    self._check_parameters()
                    part = self.solve_family(seed, block, device)
                    like = next(iter(part.values()))
                    numbers = self.parameter_values(seed, block).items()
                    names = self.parameter_names
                    part = part | {names[key]: constant(value, like) for key, value in numbers}
                else:
                    part = self.solve(seed, block, device)
            except SolveError as failure:
                raise SampleError(block[failure.row], failure.reason) from failure
            if len(block) == len(samples):
                return part
            for name, array in part.items():
                if name not in values:
                    shape, xp = (len(samples), *array.shape[1:]), array_namespace(array)
                    values[name] = xp.empty(shape, dtype=array.dtype, device=array.device)
                values[name][start : start + size] = array
        return values

    def compute(
        self, seed: int, samples: range, device: str | None = None
    ) -> dict[str, np.ndarray]:
        """Solve samples: the values of each variable, as NumPy arrays by name.

        The bits of the values do not depend on the number of threads that the environment sets.
        """
        if device is None:
            with one_thread():
                return self.solve_in_blocks(seed, samples)
        with _on_device:
            values = self.solve_in_blocks(seed, samples, device)
        return {name: to_numpy(value) for name, value in values.items()}

    @property
    def streams_per_sample(self) -> int:
        """Number K of sample numbers whose random streams a sample uses."""
        return 1

    @property
    def input_modes(self) -> int | None:
        """The largest wave number of the inputs, if the inputs are finite Fourier sums."""
        return None

    @property
    def burnt_in(self) -> bool:
        """Whether inputs are states of a flow after a burn-in, which rounding of other processors
        or transforms may change. Labels start from the stored inputs: `target_of_interpolant`."""
        return False

    def target_of_interpolant(self, a: np.ndarray) -> np.ndarray:
        """The target, in float64, for the trigonometric interpolants of stored inputs.

        Only problems with `input_modes` define this method. Raises SolveError if a sample cannot be
        solved.
        """
        raise NotImplementedError

    def software(self, device: str | None = None) -> dict[str, str]:
        """Names and versions of the packages that compute the samples, except NumPy.

        `device` is a device of PyTorch, or None for the CPU.
        """
        by_device = ("torch",) if device is not None else ("numba",) if self.compiled else ()
        return versions("scipy", *by_device) | ({} if device is not None else self.transforms)

    @property
    def transforms(self) -> dict[str, str]:
        """`provenance` (`pdegen.numerics.transforms`) of the time steps; empty if there is none."""
        return {}

    @abstractmethod
    def checks(self) -> StoreChecks:
        """New checks of the values of one store, which accumulate their statistics."""

    def checks_of_store(self) -> StoreChecks:
        """New checks of a store; see `checks` for a problem without laws of numbers.

        Checks of single samples use the numbers of each sample. Statistics of all samples must not
        depend on these numbers, unless an equation overrides this method.
        """
        return checks_of_family(self) if self.laws else self.checks()

    @property
    def statistics(self) -> Mapping[str, InputStatistic]:
        """The statistics of the input by which a recipe may select samples, by name. They are about
        the first variable."""
        return {}

    @property
    def floats_per_sample(self) -> int:
        """Largest number of float64 values in memory while one sample is drawn and solved."""
        return 20 * sum(math.prod(variable.shape) for variable in self.variables())

    def check_solver(self, device: str | None = None) -> None:
        """Raise an error if the solver or this machine cannot compute the samples."""
        needed, available = 8 * self.floats_per_sample, psutil.virtual_memory().total
        if needed > available:
            raise SchemaError(
                f"one sample takes about {needed / 1e9:,.0f} GB of memory, this machine has "
                f"{available / 1e9:,.0f} GB: choose a smaller resolution of the solver, or fewer "
                "modes"
            )
        if device is not None and not self.supports_device:
            raise SchemaError(
                f"{self.equation_name} is solved with NumPy only, got device {device!r}: use cpu"
            )
        if device is not None and device.startswith("cuda") and not torch().cuda.is_available():
            raise SchemaError(
                f"device {device} is not available to PyTorch on this machine: use cpu"
            )

    @property
    def reference(self) -> str:
        """The reference solution of `label_error`, in words."""
        raise NotImplementedError

    def label_error(self, seed: int, sample: int) -> float:
        """Relative L² difference between a label, as stored, and the reference solution.

        Raises SampleError if the sample cannot be solved.
        """
        raise NotImplementedError


def check_error(error: Float[Array, " batch"], tolerance: float, advice: str) -> None:
    """Raise SolveError if the estimated relative error of u exceeds the tolerance."""
    row = first_true(~(error <= tolerance))
    if row is not None:
        raise SolveError(
            row,
            f"the error of u is {float(error[row]):.2g}, at most {tolerance:g} is allowed: "
            f"{advice}",
        )


def with_rounding(error: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The relative L² error of a label that is stored in float32.

    It is the root of the sum of the squares of the solver's error and of the expected rounding.
    Every equation states its errors by this function.

    >>> round(float(with_rounding(np.zeros(1))[0]), 10)
    2.53e-08
    """
    return array_namespace(error).sqrt(error**2 + ROUNDING)


def check_size(u: Float[Array, "batch times *shape"]) -> None:
    """Raise SolveError if u is so small at a time that float32 cannot store it with all digits.

    `with_rounding` holds for normal numbers, which are at least 2⁻¹²⁶ in float32.
    """
    xp = array_namespace(u)
    values = xp.astype(xp.reshape(u, (*u.shape[:2], -1)), xp.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        size = xp.sqrt(xp.mean(values**2, axis=2))
    row = first_true(xp.any(size < _SMALLEST, axis=1))
    if row is not None:
        raise SolveError(
            row,
            f"u is too small for float32 (root mean square {float(xp.min(size[row])):.2g}, at "
            f"least {_SMALLEST:.2g} is needed): use shorter times, or larger inputs",
        )


def _unpickled(file: PluginFile, name: str, content: dict[str, Any]) -> Problem:
    """Rebuilds a problem of a user's file, which has run in this process by now."""
    problem: type[Problem] = getattr(module_of(file), name)
    return problem.model_validate(content)
