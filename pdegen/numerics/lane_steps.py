"""Compiled steps of exponential Runge-Kutta on vectors of eight samples.

The equation is v' = L v + N(v), with the nonlinear map N(v) = Σ_p B_p F m_p(F⁻¹ A_1 v, ...) + C v
+ c of `pseudospectral.py`. The sums of a step are those of `etdrk.py`. In a state, components
follow one another. The modes of a component have the order k₁ = 0 ... K₁ along the last axis. For
each k₁ they have the order k₀ = 0 ... K₀, -K₀ ... -1. On the circle K₀ = 0.

All functions work on addresses. `setup` is the table of integers that `lane_march` writes; the
constants below are the places of its entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Complex, Float

from pdegen.numerics.compilation import compiled
from pdegen.numerics.lane_transforms import HALVES as HALVES_ADDRESS
from pdegen.numerics.lane_transforms import JOINED as JOINED_ADDRESS
from pdegen.numerics.lane_transforms import TransformPlan
from pdegen.numerics.lanes import (
    LANES,
    addressed,
    call,
    inline,
    integer,
    load,
    number,
    packed,
    repeated,
    store,
    unpacked,
)
from pdegen.numerics.spectral import Monomial, Part, Pseudospectral, Rates, Step

# Exponential Runge-Kutta steps of eight samples at once, from NumPy arrays.


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
        for place, (block, total) in enumerate(zip(blocks, integrals, strict=True)):
            table = self._table(slice(place * LANES, (place + 1) * LANES))
            for first in range(0, count, _CHECK_INTERVAL):
                if not np.isfinite(block.sum(axis=0)).any():
                    break
                some = min(_CHECK_INTERVAL, count - first)
                march(
                    MARCH, _address(block), _address(states), _address(rates),
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
            (HALF_STEP, s.half), (FULL_STEP, s.full), (Q, s.q),
            (F1, s.f1), (F2, s.f2), (F3, s.f3),
        )  # fmt: skip
        listed = [(place, values, axes) for place, values in places]
        if n.source is not None:
            listed.append((SOURCE, n.source.astype(complex), axes))
        if self.watched is not None:
            listed.append((LINEAR_RATE, self.watched.linear.astype(complex), axes + 1))
            listed.append((QUADRATIC_RATE, self.watched.quadratic, axes + 1))
        coefficients: list[tuple[int, np.ndarray, int]] = []
        for place, values, axes in listed:
            shared = values[0] if values.ndim > axes and len(values) == 1 else values
            dtype = complex if np.iscomplexobj(shared) else float  # as compiled code reads them
            coefficients.append((place, shared.astype(dtype, copy=False), axes))
        return coefficients

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
        """Coefficients of all components and modes, with the axis of samples if they have one."""
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
            ROWS: rows, COLUMN: torus.shape[0] if self._axes == 2 else 1,
            TOP: top, HALF: last // 2, COMPONENTS: self._components,
            FIELDS: fields, PRODUCTS: products, WATCHED: self._watched,
            COLUMN_PLAN: held(columns.table), ROW_PLAN: held(line.table),
            TURNS: held(line.turns), SCRATCH: held(_empty(2 * LANES * rows)),
            COLUMNS: held(_empty(2 * LANES * rows * top * max(1, fields, products))),
            BUFFERS: held(_empty(LANES * last * (fields + products + 1))),
            FIELD_TERMS: held(self._parts(n.fields, 1.0)),
            # the transforms of a row give twice the modes
            PRODUCT_TERMS: held(self._parts(n.terms, 0.5 / (rows * last))),
            PROGRAM: held(program), FACTORS: held(factors),
            INSTRUCTIONS: len(program), COUPLING: held(coupling),
            COUPLINGS: len(n.coupling), BY_SAMPLE: int(self._by_sample),
            REAL: int(np.isrealobj(self.step.half)),
            HALVES: HALVES_ADDRESS, JOINED: JOINED_ADDRESS, **ADDRESSES,
        }  # fmt: skip
        if not self._by_sample:
            for place, values, axes in self._coefficients:
                ordered = self._ordered(self._whole(values, axes))
                entries[place] = held(np.ascontiguousarray(ordered))
        table = np.zeros(ENTRIES, np.int64)
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


# entries of the table
(
    ROWS,  # n₀, points along the first of two axes; 1 on the circle
    COLUMN,  # 2K₀ + 1, modes of a column
    TOP,  # K₁ + 1
    HALF,  # half the number of points along the last axis
    COMPONENTS,
    FIELDS,
    PRODUCTS,
    COLUMN_PLAN,
    ROW_PLAN,
    TURNS,
    SCRATCH,
    COLUMNS,
    BUFFERS,
    FIELD_TERMS,
    PRODUCT_TERMS,
    PROGRAM,
    FACTORS,
    INSTRUCTIONS,
    COUPLING,
    COUPLINGS,
    SOURCE,
    BY_SAMPLE,
    REAL,
    HALF_STEP,
    FULL_STEP,
    Q,
    F1,
    F2,
    F3,
    WATCHED,
    LINEAR_RATE,
    QUADRATIC_RATE,
    FUNCTIONS,
) = range(33)
# functions after the place FUNCTIONS of the table
HALVES, JOINED, TO_COLUMNS, FROM_COLUMNS, POINTWISE, ROWS_OF, SLOPE, SECOND, THIRD, FOURTH, LAST = (
    range(FUNCTIONS, FUNCTIONS + 11)
)
RATES = LAST + 1
ENTRIES = RATES + 1

_NUMBER_BYTES = 8
_COMPLEX_BYTES = 128  # of two vectors


@inline
def _weight(table, i, by_sample):
    """The i-th coefficient: a number for all samples, or one for each sample."""
    return load(table, i) if by_sample else repeated(number(table, i))


@inline
def _weighted(table, i, re, im, real, by_sample):
    """The i-th coefficient, real or complex, times a complex number."""
    if real:
        weight = _weight(table, i, by_sample)
        product = weight * re, weight * im
    else:
        w_re, w_im = _weight(table, 2 * i, by_sample), _weight(table, 2 * i + 1, by_sample)
        product = w_re * re - w_im * im, w_re * im + w_im * re
    return product


@inline
def _symbol(table, i, re, im):
    """The i-th value of a complex symbol times a complex number; table 0 is the identity."""
    product = re, im
    if table:
        w_re, w_im = number(table, 2 * i), number(table, 2 * i + 1)
        product = w_re * re - w_im * im, w_re * im + w_im * re
    return product


def _to_columns(v, columns, terms, count, setup):
    """A field Σ A v, transformed along the first axis: rows of the modes k₁ = 0 ... K₁."""
    rows, column, top = integer(setup, ROWS), integer(setup, COLUMN), integer(setup, TOP)
    plan, scratch = integer(setup, COLUMN_PLAN), integer(setup, SCRATCH)
    gap = rows - column
    for k1 in range(top):
        for term in range(count):
            component, table = integer(terms, 2 * term), integer(terms, 2 * term + 1)
            for k0 in range(column):
                i = k1 * column + k0
                at = 2 * (component * top * column + i)
                re, im = _symbol(table, i, load(v, at), load(v, at + 1))
                to = 2 * (k0 if 2 * k0 < column else k0 + gap)
                if term:
                    re, im = load(scratch, to) + re, load(scratch, to + 1) + im
                store(scratch, to, re)
                store(scratch, to + 1, im)
        if rows > 1:
            zero = repeated(0.0)
            for k0 in range(column // 2 + 1, column // 2 + 1 + gap):
                store(scratch, 2 * k0, zero)
                store(scratch, 2 * k0 + 1, zero)
            call(integer(plan, 0), (scratch, plan, 0))
        for row in range(rows):
            to = 2 * (row * top + k1)
            store(columns, to, load(scratch, 2 * row))
            store(columns, to + 1, load(scratch, 2 * row + 1))


def _from_columns(change, columns, terms, count, setup):
    """Add Σ B p to the change, where p is a product in the form of `_to_columns`."""
    rows, column, top = integer(setup, ROWS), integer(setup, COLUMN), integer(setup, TOP)
    plan, scratch = integer(setup, COLUMN_PLAN), integer(setup, SCRATCH)
    gap = rows - column
    for k1 in range(top):
        for row in range(rows):
            at = 2 * (row * top + k1)
            store(scratch, 2 * row, load(columns, at))
            store(scratch, 2 * row + 1, load(columns, at + 1))
        if rows > 1:
            call(integer(plan, 0), (scratch, plan, 1))
        for term in range(count):
            component, table = integer(terms, 2 * term), integer(terms, 2 * term + 1)
            for k0 in range(column):
                i = k1 * column + k0
                at = 2 * (k0 if 2 * k0 < column else k0 + gap)
                re, im = _symbol(table, i, load(scratch, at), load(scratch, at + 1))
                to = 2 * (component * top * column + i)
                store(change, to, load(change, to) + re)
                store(change, to + 1, load(change, to + 1) + im)


def _pointwise(buffers, setup):
    """The products at the points of a row, by the instructions of the program."""
    program, factors = integer(setup, PROGRAM), integer(setup, FACTORS)
    length = 2 * integer(setup, HALF)
    for instruction in range(integer(setup, INSTRUCTIONS)):
        at = 4 * instruction
        to, a = length * integer(program, at), length * integer(program, at + 1)
        b, added = length * integer(program, at + 2), integer(program, at + 3)
        factor = number(factors, instruction)
        for i in range(length):
            value = factor * load(buffers, a + i)
            if b >= 0:
                value = value * load(buffers, b + i)
            if added:
                value = load(buffers, to + i) + value
            store(buffers, to + i, value)


def _rows(setup):
    """Fields to products, row by row: both transforms of the last axis, and the products."""
    top, half, turns = integer(setup, TOP), integer(setup, HALF), integer(setup, TURNS)
    rows, fields = integer(setup, ROWS), integer(setup, FIELDS)
    plan, columns = integer(setup, ROW_PLAN), integer(setup, COLUMNS)
    buffers, transform = integer(setup, BUFFERS), integer(plan, 0)
    halves, joined = integer(setup, HALVES), integer(setup, JOINED)
    pointwise = integer(setup, POINTWISE)
    for row in range(rows):
        for f in range(fields):
            buffer = buffers + _COMPLEX_BYTES * half * f
            source = columns + _COMPLEX_BYTES * top * (f * rows + row)
            call(halves, (buffer, source, half, top - 1, turns))
            call(transform, (buffer, plan, 0))
        call(pointwise, (buffers, setup))
        for product in range(integer(setup, PRODUCTS)):
            buffer = buffers + _COMPLEX_BYTES * half * (fields + product)
            to = columns + _COMPLEX_BYTES * top * (product * rows + row)
            call(transform, (buffer, plan, 1))
            call(joined, (to, buffer, half, top - 1, turns))


def _slope(v, change, setup):
    """N(v)."""
    rows, column, top = integer(setup, ROWS), integer(setup, COLUMN), integer(setup, TOP)
    modes, source = column * top, integer(setup, SOURCE)
    columns, size = integer(setup, COLUMNS), _COMPLEX_BYTES * rows * top
    by_sample = integer(setup, BY_SAMPLE)
    for i in range(2 * modes * integer(setup, COMPONENTS)):
        store(change, i, _weight(source, i, by_sample) if source else repeated(0.0))
    coupling = integer(setup, COUPLING)
    for term in range(integer(setup, COUPLINGS)):
        to, of = integer(coupling, 3 * term), integer(coupling, 3 * term + 1)
        factor = number(coupling, 3 * term + 2)
        for i in range(2 * modes):
            grown = load(change, 2 * modes * to + i) + factor * load(v, 2 * modes * of + i)
            store(change, 2 * modes * to + i, grown)
    terms = integer(setup, FIELD_TERMS)
    for f in range(integer(setup, FIELDS)):
        first, count = integer(terms, 2 * f), integer(terms, 2 * f + 1)
        call(integer(setup, TO_COLUMNS), (v, columns + f * size, first, count, setup))
    if integer(setup, FIELDS):
        call(integer(setup, ROWS_OF), (setup,))
    terms = integer(setup, PRODUCT_TERMS)
    for product in range(integer(setup, PRODUCTS)):
        first, count = integer(terms, 2 * product), integer(terms, 2 * product + 1)
        call(integer(setup, FROM_COLUMNS), (change, columns + product * size, first, count, setup))


def _second(v, n_v, v_half, a, count, setup):
    """half v, and half v + q n_v."""
    half, q = integer(setup, HALF_STEP), integer(setup, Q)
    real, by_sample = integer(setup, REAL), integer(setup, BY_SAMPLE)
    for i in range(count):
        re, im = _weighted(half, i, load(v, 2 * i), load(v, 2 * i + 1), real, by_sample)
        n_re, n_im = _weighted(q, i, load(n_v, 2 * i), load(n_v, 2 * i + 1), real, by_sample)
        store(v_half, 2 * i, re)
        store(v_half, 2 * i + 1, im)
        store(a, 2 * i, re + n_re)
        store(a, 2 * i + 1, im + n_im)


def _third(v_half, n_a, b, count, setup):
    """half v + q n_a."""
    q, real, by_sample = integer(setup, Q), integer(setup, REAL), integer(setup, BY_SAMPLE)
    for i in range(count):
        n_re, n_im = _weighted(q, i, load(n_a, 2 * i), load(n_a, 2 * i + 1), real, by_sample)
        store(b, 2 * i, load(v_half, 2 * i) + n_re)
        store(b, 2 * i + 1, load(v_half, 2 * i + 1) + n_im)


def _fourth(a, n_v, n_b, c, count, setup):
    """half a + q (2 n_b - n_v)."""
    half, q = integer(setup, HALF_STEP), integer(setup, Q)
    real, by_sample = integer(setup, REAL), integer(setup, BY_SAMPLE)
    for i in range(count):
        re, im = _weighted(half, i, load(a, 2 * i), load(a, 2 * i + 1), real, by_sample)
        n_re = 2.0 * load(n_b, 2 * i) - load(n_v, 2 * i)
        n_im = 2.0 * load(n_b, 2 * i + 1) - load(n_v, 2 * i + 1)
        n_re, n_im = _weighted(q, i, n_re, n_im, real, by_sample)
        store(c, 2 * i, re + n_re)
        store(c, 2 * i + 1, im + n_im)


def _last(v, n_v, n_a, n_b, n_c, count, setup):
    """full v + f1 n_v + f2 (n_a + n_b) + f3 n_c, in place of v."""
    full, f1 = integer(setup, FULL_STEP), integer(setup, F1)
    f2, f3 = integer(setup, F2), integer(setup, F3)
    real, by_sample = integer(setup, REAL), integer(setup, BY_SAMPLE)
    for i in range(count):
        re, im = _weighted(full, i, load(v, 2 * i), load(v, 2 * i + 1), real, by_sample)
        n_re, n_im = _weighted(f1, i, load(n_v, 2 * i), load(n_v, 2 * i + 1), real, by_sample)
        re, im = re + n_re, im + n_im
        n_re = load(n_a, 2 * i) + load(n_b, 2 * i)
        n_im = load(n_a, 2 * i + 1) + load(n_b, 2 * i + 1)
        n_re, n_im = _weighted(f2, i, n_re, n_im, real, by_sample)
        re, im = re + n_re, im + n_im
        n_re, n_im = _weighted(f3, i, load(n_c, 2 * i), load(n_c, 2 * i + 1), real, by_sample)
        store(v, 2 * i, re + n_re)
        store(v, 2 * i + 1, im + n_im)


def _rates(v, rates, count, setup):
    """Σ Re(conj(g) v) - Σ d |v|² of each watched quantity (see `pseudospectral.Rates`)."""
    linear, quadratic = integer(setup, LINEAR_RATE), integer(setup, QUADRATIC_RATE)
    by_sample = integer(setup, BY_SAMPLE)
    for quantity in range(integer(setup, WATCHED)):
        total = repeated(0.0)
        for i in range(count):
            re, im = load(v, 2 * i), load(v, 2 * i + 1)
            at = quantity * count + i
            given = _weight(linear, 2 * at, by_sample) * re
            given = given + _weight(linear, 2 * at + 1, by_sample) * im
            lost = _weight(quadratic, at, by_sample) * (re * re + im * im)
            total = total + (given - lost)
        store(rates, quantity, total)


def _march(v, states, rates, integrals, steps, setup):
    """Advance the state by an even or odd number of steps, or by none."""
    count = integer(setup, COMPONENTS) * integer(setup, COLUMN) * integer(setup, TOP)
    size, watched = _COMPLEX_BYTES * count, integer(setup, WATCHED)
    n_v, n_a, n_b = states, states + size, states + 2 * size
    n_c, v_half, stage = states + 3 * size, states + 4 * size, states + 5 * size
    slope, watch = integer(setup, SLOPE), integer(setup, RATES)
    left, middle = rates, rates + 8 * _NUMBER_BYTES * watched
    right = middle + 8 * _NUMBER_BYTES * watched
    if watched:
        call(watch, (v, left, count, setup))
    for step in range(steps):
        call(slope, (v, n_v, setup))
        call(integer(setup, SECOND), (v, n_v, v_half, stage, count, setup))
        call(slope, (stage, n_a, setup))
        # the stage b overwrites half v, which the later stages do not need
        call(integer(setup, THIRD), (v_half, n_a, v_half, count, setup))
        call(slope, (v_half, n_b, setup))
        call(integer(setup, FOURTH), (stage, n_v, n_b, stage, count, setup))
        call(slope, (stage, n_c, setup))
        call(integer(setup, LAST), (v, n_v, n_a, n_b, n_c, count, setup))
        if watched:
            call(watch, (v, right if step % 2 else middle, count, setup))
            if step % 2:
                for i in range(watched):
                    total = load(left, i) + (4.0 * load(middle, i) + load(right, i))
                    store(integrals, i, load(integrals, i) + total)
                    store(left, i, load(right, i))


ADDRESSES = {
    TO_COLUMNS: addressed(_to_columns), FROM_COLUMNS: addressed(_from_columns),
    POINTWISE: addressed(_pointwise), ROWS_OF: addressed(_rows), SLOPE: addressed(_slope),
    SECOND: addressed(_second), THIRD: addressed(_third), FOURTH: addressed(_fourth),
    LAST: addressed(_last), RATES: addressed(_rates),
}  # fmt: skip
MARCH = addressed(_march)


@compiled()
def slopes(function, v, change, count, setup):
    """N(v), computed `count` times, for benchmarks."""
    for _ in range(count):
        call(function, (v, change, setup))


@compiled()
def march(function, v, states, rates, integrals, steps, setup):
    """`_march`, while other threads of Python run."""
    call(function, (v, states, rates, integrals, steps, setup))
