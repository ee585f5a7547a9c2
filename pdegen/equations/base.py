"""The base class of the problems that recipes declare."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Sequence
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import psutil
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.checks.check import ROUNDING, StoreChecks, checks_of_family
from pdegen.domains import Domain
from pdegen.equations.guarantee import Guarantee
from pdegen.equations.parameters import WithLaws
from pdegen.equations.registry import equation_name_of, registered_problems
from pdegen.inverse.classical import ClassicalMethod, Forward, InverseProblem
from pdegen.inverse.tikhonov import by_forward
from pdegen.numerics.device import (
    Array,
    SolveError,
    constant,
    first_true,
    one_thread,
    samples_at_once,
    to_numpy,
    torch,
)
from pdegen.plugins import PluginFile, module_of, plugin_of
from pdegen.schema import Count, SchemaError, Strict
from pdegen.software import versions
from pdegen.store.format import Physics
from pdegen.store.layout import Coordinate, Variable

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
        """The equation in LaTeX (ASCII, amsmath), with the values of its constants.

        If the text is empty, or cannot be read as LaTeX, reports show `formula` instead.
        """
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

    def _solved(self, seed: int, samples: range, device: str | None) -> dict[str, Array]:
        if not self.laws:
            return self.solve(seed, samples, device)
        self._check_parameters()
        values = self.solve_family(seed, samples, device)
        like = next(iter(values.values()))
        numbers = self.parameter_values(seed, samples)
        return values | {
            self.parameter_names[key]: constant(value, like) for key, value in numbers.items()
        }

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
                part = self._solved(seed, block, device)
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
        """Number K of sample numbers whose random streams a sample uses.

        Sample i uses the streams of the numbers i + k 2³² for k = 0 ... K - 1.
        """
        return 1

    @property
    def input_modes(self) -> int | None:
        """The largest wave number of the inputs, if the inputs are finite Fourier sums.

        None if an input is not a Fourier sum, but is defined by its stored values.
        """
        return None

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
        """The name of the Fourier transforms of the solver's time steps on the CPU, as `transforms`
        (`pdegen.numerics.transforms`); empty if it has none, or if they are those of SciPy."""
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
    def floats_per_sample(self) -> int:
        """Largest number of float64 values in memory while one sample is drawn and solved.

        The default is twenty times the number of values of a sample in a store.
        """
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
