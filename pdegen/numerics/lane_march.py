"""Exponential Runge-Kutta steps of eight samples at once (`lane_steps.py`), from NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Complex, Float

from pdegen.numerics import lane_steps as steps
from pdegen.numerics.etdrk import Step
from pdegen.numerics.lane_transforms import HALVES, JOINED, TransformPlan
from pdegen.numerics.lanes import LANES, packed, unpacked
from pdegen.numerics.pseudospectral import Monomial, Part, Pseudospectral, Rates

_CHECK_INTERVAL = 64  # steps between tests for a blow-up, an even number
_LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class LaneMarch:
    """Steps of one size of v' = L v + N(v), by compiled code.

    Args:
        nonlinear: The map N, on a torus with `has_vectors`.
        step: The coefficients of the step.
        h: The size of the step.
        watched: Quantities that are integrated over time, if any.
    """

    nonlinear: Pseudospectral
    step: Step
    h: float
    watched: Rates | None = None
    # arrays whose addresses stand in the table
    _arrays: list[object] = field(default_factory=list[object], init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.nonlinear.components <= set(range(self._components)):
            raise ValueError(
                "nonlinear terms must act on components between 0 and "
                f"{self._components - 1}, got {sorted(self.nonlinear.components)}"
            )

    def __call__(
        self, v: Complex[np.ndarray, "batch components *modes"], count: int
    ) -> tuple[Complex[np.ndarray, "batch components *modes"], Float[np.ndarray, "batch watched"]]:
        """The state after `count` steps, and the integrals of the watched quantities.

        Samples that blow up have values that are not finite. An integral needs an even count.
        """
        for _, values, axes in self._coefficients:
            if values.ndim > axes and len(values) != len(v):
                raise ValueError(f"coefficients of {len(values)} samples do not fit {len(v)}")
        blocks = _aligned(packed(self._ordered(v.astype(complex, copy=False))))
        integrals = np.zeros((len(blocks), self._watched, LANES))
        rates = _aligned(np.zeros((3, max(1, self._watched), LANES)))
        states = _empty(6 * blocks[0].size)
        for number, (block, total) in enumerate(zip(blocks, integrals, strict=True)):
            table = self._table(slice(number * LANES, (number + 1) * LANES))
            for first in range(0, count, _CHECK_INTERVAL):
                if not np.isfinite(block.sum(axis=0)).any():
                    break
                some = min(_CHECK_INTERVAL, count - first)
                steps.march(
                    steps.MARCH, _address(block), _address(states), _address(rates),
                    _address(total), some, _address(table),
                )  # fmt: skip
        after = unpacked(blocks, len(v), np.complex128).reshape(self._ordered(v).shape)
        grown = unpacked(integrals, len(v), np.float64) * (self.h / 3)
        return np.ascontiguousarray(self._ordered(after)), grown

    def packed_slope(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The vectors of eight samples, room for N of them, and the table for `lane_steps.slopes`.

        The table holds addresses, so this object must live as long as the table.
        """
        block = _aligned(packed(self._ordered(v)))[0]
        return block, _empty(block.size), self._table(slice(0, LANES))

    def _ordered(self, v: np.ndarray) -> np.ndarray:
        """Arrays of modes with the axes of the torus in the order of compiled code, or back."""
        return np.swapaxes(v, -1, -2) if self._axes == 2 else v

    @property
    def _axes(self) -> int:
        return len(self.nonlinear.torus.points)

    @property
    def _components(self) -> int:
        return self.step.half.shape[-self._axes - 1]

    @property
    def _watched(self) -> int:
        return 0 if self.watched is None else self.watched.quadratic.shape[-self._axes - 2]

    @cached_property
    def _coefficients(self) -> list[tuple[int, np.ndarray, int]]:
        """Places in the table, coefficients, and the number of their axes without samples."""
        n, s, axes = self.nonlinear, self.step, self._axes + 1
        places = (
            (steps.HALF_STEP, s.half), (steps.FULL_STEP, s.full), (steps.Q, s.q),
            (steps.F1, s.f1), (steps.F2, s.f2), (steps.F3, s.f3),
        )  # fmt: skip
        listed = [(place, values, axes) for place, values in places]
        if n.source is not None:
            listed.append((steps.SOURCE, n.source.astype(complex), axes))
        if self.watched is not None:
            listed.append((steps.LINEAR_RATE, self.watched.linear.astype(complex), axes + 1))
            listed.append((steps.QUADRATIC_RATE, self.watched.quadratic, axes + 1))
        return [(place, _float64(values, axes), axes) for place, values, axes in listed]

    @cached_property
    def _by_sample(self) -> bool:
        """Whether any coefficient differs from sample to sample."""
        return any(values.ndim > axes for _, values, axes in self._coefficients)

    def _table(self, rows: slice) -> np.ndarray:
        """The table that compiled code reads, for the samples of a block."""
        if not self._by_sample:
            return self._shared
        table, vectors = self._shared.copy(), self._by_block
        vectors.clear()
        for place, values, axes in self._coefficients:
            whole = self._whole(values, axes)
            some = (
                whole[rows] if values.ndim > axes else np.broadcast_to(whole, (LANES, *whole.shape))
            )
            vectors.append(_aligned(packed(self._ordered(some))))
            table[place] = _address(vectors[-1])
        return table

    @cached_property
    def _by_block(self) -> list[np.ndarray]:
        """The coefficients of the samples of a block, which the table of the block refers to."""
        return []

    def _whole(self, values: np.ndarray, axes: int) -> np.ndarray:
        """Coefficients of all components and modes, with an axis of samples in front if they have
        one."""
        shape = (self._components, *self.nonlinear.torus.shape)
        before = values.shape[: values.ndim - len(shape)]
        return np.broadcast_to(values, (*before, *shape)[-max(axes, values.ndim) :])

    def _address_of(self, array: np.ndarray) -> int:
        """The address of an array, which is kept as long as this object."""
        self._arrays.append(array)
        return _address(array)

    @cached_property
    def _shared(self) -> np.ndarray:
        """The table, without coefficients that differ from sample to sample."""
        n, torus, held = self.nonlinear, self.nonlinear.torus, self._address_of
        rows, last = (1, *torus.points)[-2:]
        columns, line = TransformPlan(rows), TransformPlan(last // 2)
        self._arrays.extend((columns, line))  # their tables hold addresses of their roots
        program, factors = _program(n.products, len(n.fields))
        fields, products, top = len(n.fields), len(n.products), torus.shape[-1]
        coupling = np.zeros((max(1, len(n.coupling)), 3))
        for k, (row, column, factor) in enumerate(n.coupling):
            coupling[k, :2] = np.array([row, column], np.int64).view(np.float64)
            coupling[k, 2] = factor
        entries = {
            steps.ROWS: rows, steps.COLUMN: torus.shape[0] if self._axes == 2 else 1,
            steps.TOP: top, steps.HALF: last // 2, steps.COMPONENTS: self._components,
            steps.FIELDS: fields, steps.PRODUCTS: products, steps.WATCHED: self._watched,
            steps.COLUMN_PLAN: held(columns.table), steps.ROW_PLAN: held(line.table),
            steps.TURNS: held(line.turns), steps.SCRATCH: held(_empty(2 * LANES * rows)),
            steps.COLUMNS: held(_empty(2 * LANES * rows * top * max(1, fields, products))),
            steps.BUFFERS: held(_empty(LANES * last * (fields + products + 1))),
            steps.FIELD_TERMS: held(self._parts(n.fields, 1.0)),
            # the transforms of a row give twice the modes
            steps.PRODUCT_TERMS: held(self._parts(n.terms, 0.5 / (rows * last))),
            steps.PROGRAM: held(program), steps.FACTORS: held(factors),
            steps.INSTRUCTIONS: len(program), steps.COUPLING: held(coupling),
            steps.COUPLINGS: len(n.coupling), steps.BY_SAMPLE: int(self._by_sample),
            steps.REAL: int(np.isrealobj(self.step.half)),
            steps.HALVES: HALVES, steps.JOINED: JOINED, **steps.ADDRESSES,
        }  # fmt: skip
        if not self._by_sample:
            for place, values, axes in self._coefficients:
                ordered = self._ordered(self._whole(values, axes))
                entries[place] = held(np.ascontiguousarray(ordered))
        table = np.zeros(steps.ENTRIES, np.int64)
        for place, value in entries.items():
            table[place] = value
        return table

    def _parts(self, listed: Sequence[Sequence[Part]], scale: float) -> np.ndarray:
        """(address, count) of the parts of each field or product; parts are (component, symbol)."""
        shape, rows = self.nonlinear.torus.shape, list[tuple[int, int]]()
        for parts in listed:
            table = np.zeros((len(parts), 2), np.int64)
            for k, (component, symbol) in enumerate(parts):
                table[k, 0] = component
                if symbol is not None or scale != 1:
                    values = np.broadcast_to(scale * (1.0 if symbol is None else symbol), shape)
                    array = np.ascontiguousarray(self._ordered(values), complex)
                    table[k, 1] = self._address_of(array)
            rows.append((self._address_of(table), len(parts)))
        return np.array(rows, np.int64).reshape(-1, 2)


def _program(products: Sequence[Sequence[Monomial]], fields: int) -> tuple[np.ndarray, np.ndarray]:
    """The instructions of `lane_steps` for polynomials of the fields, and their factors."""
    program, factors = list[tuple[int, int, int, int]](), list[float]()
    work = fields + len(products)  # buffer of products that are not complete
    for p, monomials in enumerate(products):
        for k, (factor, (first, *others)) in enumerate(monomials):
            a, added = first, int(k > 0)
            for b in others[:-1]:
                program.append((work, a, b, 0))
                factors.append(1.0)
                a = work
            program.append((fields + p, a, others[-1] if others else -1, added))
            factors.append(factor)
    return np.array(program, np.int64).reshape(-1, 4), np.array(factors)


def _float64(values: np.ndarray, axes: int) -> np.ndarray:
    """Coefficients as compiled code reads them: float64 or complex128.

    Coefficients of a single sample are those of all samples.
    """
    shared = values[0] if values.ndim > axes and len(values) == 1 else values
    return shared.astype(complex if np.iscomplexobj(shared) else float, copy=False)


def _empty(count: int) -> np.ndarray:
    """float64 numbers that begin at a cache line, as vectors should."""
    array = np.empty(count + _LINE // 8)
    first = -array.ctypes.data % _LINE // 8
    return array[first : first + count]


def _aligned(array: np.ndarray) -> np.ndarray:
    copy = _empty(array.size).reshape(array.shape)
    copy[...] = array
    return copy


def _address(array: np.ndarray) -> int:
    return array.ctypes.data
