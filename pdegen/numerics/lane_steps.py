"""Compiled steps of exponential Runge-Kutta on vectors of eight samples.

The equation is v' = L v + N(v), with the nonlinear map N(v) = Σ_p B_p F m_p(F⁻¹ A_1 v, ...) + C v
+ c of `pseudospectral.py`. The sums of a step are those of `etdrk.py`. In a state, components
follow one another. The modes of a component have the order k₁ = 0 ... K₁ along the last axis. For
each k₁ they have the order k₀ = 0 ... K₀, -K₀ ... -1. On the circle K₀ = 0.

All functions work on addresses. `setup` is the table of integers that `lane_march` writes; the
constants below are the places of its entries.
"""

from __future__ import annotations

from pdegen.numerics.compilation import compiled
from pdegen.numerics.lanes import (
    addressed,
    call,
    inline,
    integer,
    load,
    number,
    repeated,
    store,
)

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
    """The products at the points of a row, by the instructions of the program.

    An instruction (to, a, b, added) writes factor · a b, or adds it; b = -1 stands for 1.
    """
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
        for field in range(fields):
            buffer = buffers + _COMPLEX_BYTES * half * field
            source = columns + _COMPLEX_BYTES * top * (field * rows + row)
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
    for field in range(integer(setup, FIELDS)):
        first, count = integer(terms, 2 * field), integer(terms, 2 * field + 1)
        call(integer(setup, TO_COLUMNS), (v, columns + field * size, first, count, setup))
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
    """Advance the state by an even or odd number of steps, or by none.

    `states` has room for six states. `rates` has room for three sets of rates: at the last even
    step, at the last odd step, and at the last step. The integrals, in units of h/3, are those of
    Simpson's rule over pairs of steps, so an integral needs an even number of steps.
    """
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
