"""What the declaration of every problem offers to recipes and stores."""

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

from pdegen.checks.law import Law
from pdegen.domains import Domain
from pdegen.equations.guarantee import Guarantee
from pdegen.equations.registry import (
    equation_file_of,
    equation_name_of,
    registered_problems,
    unpickled,
)
from pdegen.inverse.classical import ClassicalMethod, Forward, InverseProblem
from pdegen.numerics.device import Array, first_true, samples_at_once, to_numpy, torch
from pdegen.numerics.errors import SolveError
from pdegen.numerics.one_thread import one_thread
from pdegen.schema import Count, SchemaError, Strict
from pdegen.software import versions
from pdegen.store.format import Physics
from pdegen.store.variables import Coordinate, Variable

# One task computes on a device while others copy and write: a block may fill its memory.
_on_device = Lock()


class SampleError(ArithmeticError):
    """A sample of a dataset could not be computed; says which and why."""

    exit_status = 1

    def __init__(self, sample: int, reason: str) -> None:
        super().__init__(sample, reason)
        self.sample = sample
        self.reason = reason

    def __str__(self) -> str:
        return f"sample {self.sample}: {self.reason}"


class Problem(Strict):
    """An equation with its law of random inputs, its resolution and its solver.

    Args:
        resolution: Points of the output along each axis.
    """

    # enters the fingerprint: raised when a change of code changes the numbers of a recipe
    algorithm: ClassVar[int] = 1
    supports_device: ClassVar[bool] = False  # whether `solve` can use a device of PyTorch
    compared_samples: ClassVar[int] = (
        0  # the first samples, whose labels are compared to a reference
    )
    largest_batch: ClassVar[int] = (
        sys.maxsize
    )  # samples that NumPy solves together: bounds their arrays
    compiled: ClassVar[bool] = False  # whether Numba compiles what solves with NumPy

    resolution: Count

    @classmethod
    def variants(cls) -> tuple[type[Strict], ...]:
        """All registered ones in place of what they have in common."""
        return registered_problems() if cls is Problem else (cls,)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """One from a file takes the file along to other processes."""
        source = equation_file_of(type(self))
        if source is None:
            return super().__reduce_ex__(protocol)
        return unpickled, (source, type(self).__qualname__, self.model_dump())

    @property
    def equation_name(self) -> str:
        """How recipes name the equation."""
        return equation_name_of(type(self))

    @property
    @abstractmethod
    def formula(self) -> str:
        """The equation in one line."""

    @property
    def latex(self) -> str:
        """The equation as LaTeX of amsmath in ASCII, with the values of its constants; empty where
        reports show the words of `formula`."""
        return ""

    @abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """What a store holds of every sample."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """Where its functions live; the coordinates of space follow from it."""

    def coordinates(self) -> tuple[Coordinate, ...]:
        """What a store holds once, beside the numbers of the samples and the domain: times."""
        return ()

    def physics(self) -> Physics:
        """What readers who do not know the equation should know of its fields."""
        return Physics()

    def inversions(self, setting: InverseProblem) -> dict[str, ClassicalMethod]:
        """Classical ways from noisy targets back to the input, by their names, where a setting says
        the points of the data, and known pairs on the cells where the input is wanted. Raises
        SchemaError if there is none, or none for this law; says why."""
        raise SchemaError(f"{self.equation_name} offers no classical inversions")

    def forward(self, x: Float[np.ndarray, " m"]) -> Forward | None:
        """From an input, on any cells or points, to the data of an inverse problem at the points x
        along each axis, by the solver of the recipe; None where the equation offers none."""
        return None

    def guarantee(self, inputs: Sequence[str], target: str) -> Guarantee:
        """What can be proved of predictions of a variable `target` from variables `inputs`. Raises
        SchemaError if there is nothing; says why."""
        raise SchemaError(f"{self.equation_name} offers no bound of errors")

    @abstractmethod
    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        """The values of these samples for each variable; sample i depends on (seed, i) alone.

        Args:
            seed, samples: Which samples; never more than `largest_batch`.
            device: A device of PyTorch to sample and solve on, such as "cuda", where the values
                then are; None is NumPy. They agree up to the solver's tolerance.

        Raises:
            SolveError, SampleError: If a sample cannot be solved or is not finite: by its place in
                `samples`, or by its number.
        """

    def solve_in_blocks(
        self, seed: int, samples: range, device: str | None = None
    ) -> dict[str, Array]:
        """The values of any number of samples, by `solve`, so many at a time as memory allows.
        Raises SampleError if one cannot be solved or is not finite."""
        size = self.largest_batch if device is None else samples_at_once(self.floats_per_sample)
        values = dict[str, Array]()
        for start in range(0, len(samples), size):
            block = samples[start : start + size]
            try:
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
        """The values of `solve_in_blocks` as NumPy arrays; the same bits whatever number of threads
        the environment asks for."""
        if device is None:
            with one_thread():
                return self.solve_in_blocks(seed, samples)
        with _on_device:
            values = self.solve_in_blocks(seed, samples, device)
        return {name: to_numpy(value) for name, value in values.items()}

    @property
    def input_modes(self) -> int | None:
        """The largest wave number of inputs that are Fourier sums; None where labels are those of
        the stored inputs, whatever the grid."""
        return None

    def target_of_interpolant(self, a: np.ndarray) -> np.ndarray:
        """The target of the trigonometric interpolants of inputs, as a store holds them, in
        float64; where there are `input_modes`. Raises SolveError if one cannot be solved."""
        raise NotImplementedError

    def software(self, device: str | None = None) -> dict[str, str]:
        """Names and versions of the packages that compute its samples on a device of PyTorch, or
        with None, beside NumPy."""
        by_device = ("torch",) if device is not None else ("numba",) if self.compiled else ()
        return versions("scipy", *by_device)

    @abstractmethod
    def law(self) -> Law:
        """What the values of a store must follow, to be checked once, sample by sample."""

    @property
    def floats_per_sample(self) -> int:
        """Numbers in float64 that are in memory, at most, to sample and solve one sample; twenty
        times those that a store keeps of it, unless an equation knows better."""
        return 20 * sum(math.prod(variable.shape) for variable in self.variables())

    def check_solver(self, device: str | None = None) -> None:
        """Raise an error where the solver, or this machine, cannot do what is asked."""
        need, there = 8 * self.floats_per_sample, psutil.virtual_memory().total
        if need > there:
            raise SchemaError(
                f"one sample takes some {need / 1e9:,.0f} GB of memory, this machine has "
                f"{there / 1e9:,.0f} GB: choose a smaller resolution of the solver, or fewer modes"
            )
        if device is not None and not self.supports_device:
            raise SchemaError(
                f"{self.equation_name} is solved with NumPy alone, got device {device!r}: use cpu"
            )
        if device is not None and device.startswith("cuda") and not torch().cuda.is_available():
            raise SchemaError(
                f"device {device} is not available to PyTorch on this machine: use cpu"
            )

    @property
    def reference(self) -> str:
        """The solution that labels are compared to, in words."""
        raise NotImplementedError

    def label_error(self, seed: int, sample: int) -> float:
        """Relative L² difference of a label, as it is stored, to the reference solution. Raises
        SampleError if the sample cannot be solved."""
        raise NotImplementedError


def check_error(error: Float[Array, " batch"], most: float, why: str) -> None:
    """Raise SolveError where the estimate of the relative error of u is larger than allowed."""
    row = first_true(~(error <= most))
    if row is not None:
        raise SolveError(
            row, f"u is off by {float(error[row]):.2g}, at most {most:g} is allowed: {why}"
        )
