"""Fourier space on a periodic grid of length L, in the half-complex layout of rfft."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add, mul

import numpy as np
import scipy
from array_api_compat import array_namespace
from jaxtyping import Complex, Float, Num

from pdegen.domains import PeriodicGrid
from pdegen.numerics.device import Array, constant, empty
from pdegen.numerics.transforms import fft_of

# Exponential time differencing Runge-Kutta of order 4 for a diagonal linear part.


State = Complex[Array, "batch *modes"]
Symbol = Float[Array, " *modes"] | Complex[Array, " *modes"]  # or with an axis of samples


@dataclass(frozen=True)
class Step:
    """One step of size h of dv/dt = L v + N(v) for a diagonal L. `Step.of(L, h)` builds it.

    `Step.of_each` builds the step of an L that differs from sample to sample.

    Without N the step is exact for any h:

    >>> step = Step.of(np.array([-1.0, -100.0]), h=0.5)
    >>> bool(np.allclose(step.full, np.exp([-0.5, -50.0]), rtol=1e-14))
    True
    """

    half: Symbol  # exp(L h/2)
    full: Symbol  # exp(L h)
    q: Symbol
    f1: Symbol
    f2: Symbol
    f3: Symbol

    @classmethod
    def of(cls, linear: Symbol, h: float, points: int = 32) -> Step:
        """The step of size h for the symbol L.

        Each coefficient is the mean of its formula over `points` points of a circle of radius 1
        about L h. The formula suffers from cancellation near L h = 0, but not on the circle. For a
        real symbol, the mean of the real part over half of the circle suffices.
        """
        real = np.isrealobj(linear)
        turn = np.pi if real else 2 * np.pi
        z = h * linear[..., None] + np.exp(1j * turn * (np.arange(points) + 0.5) / points)
        e = np.exp(z)

        def mean(value: Complex[np.ndarray, "*modes points"]) -> Symbol:
            return h * (np.real(value) if real else value).mean(axis=-1)

        return cls(
            half=np.exp(h * linear / 2),
            full=np.exp(h * linear),
            q=mean((np.exp(z / 2) - 1) / z),
            f1=mean((-4 - z + e * (4 - 3 * z + z**2)) / z**3),
            f2=2 * mean((2 + z + e * (z - 2)) / z**3),
            f3=mean((-4 - 3 * z - z**2 + e * (4 - z)) / z**3),
        )

    @classmethod
    def of_each(cls, linear: Iterable[Symbol], h: float) -> Step:
        """The step of size h with one symbol for each sample, with the bits of `Step.of`."""
        steps = [vars(cls.of(symbol, h)).values() for symbol in linear]
        return cls(*(np.stack(symbols) for symbols in zip(*steps, strict=True)))

    def where(self, like: Array) -> Step:
        """The same step for arrays of the namespace and device of `like`."""
        return Step(*(constant(symbol, like) for symbol in vars(self).values()))

    def __call__(self, v: State, nonlinear: Callable[[State], State]) -> State:
        """The state after the step."""
        n_v = nonlinear(v)
        v_half = self.half * v
        a = v_half + self.q * n_v
        n_a = nonlinear(a)
        b = v_half + self.q * n_a
        n_b = nonlinear(b)
        c = self.half * a + self.q * (2 * n_b - n_v)
        n_c = nonlinear(c)
        return self.full * v + self.f1 * n_v + self.f2 * (n_a + n_b) + self.f3 * n_c


# Piecewise quadratic interpolation.


def with_midpoints(values: Array, axis: int) -> Array:
    """Values at the nodes and at the midpoints between them, along an axis.

    The midpoint values lie on the parabolas through the nodes (0, 1, 2), (2, 3, 4), and so on. The
    number of nodes must be odd.

    >>> import numpy as np
    >>> with_midpoints(np.array([0.0, 1.0, 4.0]), 0).tolist()
    [0.0, 0.25, 1.0, 2.25, 4.0]
    """
    xp = array_namespace(values)
    v = xp.moveaxis(values, axis, 0)
    first, middle, last = v[:-1:2], v[1::2], v[2::2]
    early, late = (3 * a + 6 * middle - b for a, b in ((first, last), (last, first)))
    parts = xp.stack([first, early / 8, middle, late / 8], axis=1)
    refined = xp.concat([xp.reshape(parts, (-1, *v.shape[1:])), v[-1:]])
    return xp.moveaxis(refined, 0, axis)


# Fourier space on a periodic box of one or more axes, restricted to modes free of aliasing.


@dataclass(frozen=True)
class Torus:
    """The modes of a periodic box on which products of `degree` factors are free of aliasing.

    Raises:
        ValueError: If a grid has an odd number of points, or too few points for any mode.

    >>> torus = Torus((PeriodicGrid(16), PeriodicGrid(16, length=2.0)))
    >>> x, y = np.meshgrid(*[grid.x for grid in torus.grids], indexing="ij")
    >>> phase = 2 * np.pi * x + np.pi * y
    >>> v = torus.to_modes(np.sin(phase))
    >>> bool(np.allclose(torus.to_points(torus.d[1] * v), np.pi * np.cos(phase)))
    True
    """

    grids: tuple[PeriodicGrid, ...]  # along each axis, with an even number of points
    # most factors of a product: modes k < n/(degree + 1) are kept (for 2, Orszag's 2/3 rule)
    degree: int = 2

    def __post_init__(self) -> None:
        for grid in self.grids:
            if grid.n % 2 or grid.n <= self.degree + 1:
                raise ValueError(
                    f"a spectral method for products of {self.degree} factors needs an even number "
                    f"of points > {self.degree + 1} along each axis, got {grid.n}"
                )

    @property
    def points(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(grid.n for grid in self.grids)

    @cached_property
    def highest(self) -> tuple[int, ...]:
        """Largest wave number K along each axis."""
        return tuple((n - 1) // (self.degree + 1) for n in self.points)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an array of modes."""
        return (*(2 * k + 1 for k in self.highest[:-1]), self.highest[-1] + 1)

    @cached_property
    def numbers(self) -> tuple[Float[np.ndarray, "..."], ...]:
        """Wave numbers k along each axis, shaped to broadcast over an array of modes."""
        last = len(self.grids) - 1
        along_axes = []
        for axis, k in enumerate(self.highest):
            numbers = np.arange(k + 1) if axis == last else np.r_[0 : k + 1, -k:0]
            along_axes.append(
                numbers.astype(float).reshape([-1 if a == axis else 1 for a in range(last + 1)])
            )
        return tuple(along_axes)

    @cached_property
    def wave_numbers(self) -> tuple[Float[np.ndarray, "..."], ...]:
        """Angular wave numbers 2πk/L along each axis."""
        return tuple(
            2 * np.pi * k / g.length for k, g in zip(self.numbers, self.grids, strict=True)
        )

    @cached_property
    def d(self) -> tuple[Complex[np.ndarray, "..."], ...]:
        """The symbols 2πik/L of the derivatives along each axis."""
        return tuple(1j * k for k in self.wave_numbers)

    @cached_property
    def laplacian(self) -> Float[np.ndarray, " *modes"]:
        """The symbol -|2πk/L|² of the Laplacian."""
        return -np.sum([np.broadcast_to(k**2, self.shape) for k in self.wave_numbers], axis=0)

    @cached_property
    def inverse_laplacian(self) -> Float[np.ndarray, " *modes"]:
        """The symbol of the inverse Laplacian on functions without mean; 0 for the mean."""
        symbol = self.laplacian.copy()
        symbol[(0,) * symbol.ndim] = np.inf
        return 1 / symbol

    @cached_property
    def weights(self) -> Float[np.ndarray, " *modes"]:
        """Weights w with Σ w |v|² = mean of u²: 2 where the mode -k is not stored, 1 elsewhere."""
        weights = np.full(self.shape, 2.0)
        weights[..., 0] = 1
        return weights

    @cached_property
    def finer(self) -> Torus:
        """A finer torus, with at least a quarter more points along each axis."""
        return Torus(tuple(map(self._finer, self.grids, self.highest)), self.degree)

    def _finer(self, grid: PeriodicGrid, highest: int) -> PeriodicGrid:
        n = max(math.ceil(1.25 * grid.n), (self.degree + 1) * (highest + 2) + 1)
        while n % 2 or scipy.fft.next_fast_len(n, real=True) > n:
            n += 1
        return replace(grid, n=n)

    def padded(self, v: Complex[Array, " *batch *modes"]) -> Complex[Array, " *batch *finer"]:
        """The modes v of a coarser torus, padded with zeros to the modes of this torus."""
        *others, last = self.shape
        for axis, size in zip(range(-len(self.grids), -1), others, strict=True):
            v = _padded(v, axis, size)
        return _lengthened(v, last)

    def to_modes(self, u: Float[Array, " *batch *points"]) -> Complex[Array, " *batch *modes"]:
        """The Fourier coefficients of the stored modes, from the values u at the points."""
        v = self.to_columns(u)
        for axis in range(-len(self.grids), -1):
            v = _kept(v, axis, self.highest[axis])
        return v

    def to_points(
        self, v: Complex[Array, " *batch *modes"], points: tuple[int, ...] | None = None
    ) -> Float[Array, " *batch *points"]:
        """The values of a function on equally spaced points.

        Args:
            v: Modes of the function.
            points: Number n of points along each axis, by default that of the grids. The modes
                |k| >= n/2 would alias and are left out.
        """
        points = self.points if points is None else points
        for axis in range(-len(self.grids), -1):
            v = _padded(v, axis, points[axis])
        return self.from_columns(v, points[-1])

    def to_columns(self, u: Float[Array, " *batch *points"]) -> Complex[Array, "..."]:
        """The Fourier coefficients of u, with all n modes along every axis except the last.

        Along the last axis, only the stored modes are returned.
        """
        fft, into = fft_of(u)
        v = fft.rfft(u, norm="forward")[..., : self.shape[-1]]
        for axis in range(-len(self.grids), -1):
            v = fft.fft(v, axis=axis, norm="forward", **into)
        return v

    def from_columns(self, v: Complex[Array, "..."], n: int) -> Float[Array, "..."]:
        """The values of a function at the points, with n points along the last axis.

        v has all modes along every axis except the last. v may be overwritten.
        """
        fft, into = fft_of(v)
        for axis in range(-len(self.grids), -1):
            v = fft.ifft(v, axis=axis, norm="forward", **into)
        # zeros are added here: SciPy would add them in fresh pages, which is several times slower
        half = _lengthened(v[..., : (n - 1) // 2 + 1], n // 2 + 1)
        return fft.irfft(half, n=n, norm="forward", **into)


def even_extension(u: Float[Array, "*batch *cells"], axes: int) -> Float[Array, "*batch *points"]:
    """The even function on a torus of twice the sides, from values at the cells of a box.

    Its points are the centres of the cells and their reflections at the walls.

    >>> even_extension(np.array([1.0, 2.0, 3.0]), 1).tolist()
    [1.0, 2.0, 3.0, 3.0, 2.0, 1.0]
    """
    xp = array_namespace(u)
    for axis in range(-axes, 0):
        u = xp.concat([u, xp.flip(u, axis=axis)], axis=axis)
    return u


def _kept(v: Array, axis: int, highest: int) -> Array:
    """The modes 0 ... K, -K ... -1 along one axis, selected from all n modes."""
    xp, after = array_namespace(v), (slice(None),) * (-axis - 1)
    return xp.concat(
        [
            v[(..., slice(highest + 1), *after)],
            v[(..., slice(v.shape[axis] - highest, None), *after)],
        ],
        axis=axis,
    )


def _lengthened(v: Array, count: int) -> Array:
    """v with zeros appended along the last axis, to a length of `count`."""
    xp, n = array_namespace(v), v.shape[-1]
    longer = xp.empty((*v.shape[:-1], count), dtype=v.dtype, device=v.device)
    longer[..., :n], longer[..., n:] = v, 0
    return longer


def _padded(v: Array, axis: int, n: int) -> Array:
    """v with n modes along one axis; modes that v does not have are 0."""
    xp, after = array_namespace(v), (slice(None),) * (-axis - 1)
    highest = min(v.shape[axis] // 2, (n - 1) // 2)
    below, above = slice(highest + 1), slice(n - highest, None)
    shape = list(v.shape)
    shape[axis] = n
    padded = xp.empty(tuple(shape), dtype=v.dtype, device=v.device)
    padded[(..., below, *after)] = v[(..., below, *after)]
    padded[(..., slice(highest + 1, n - highest), *after)] = 0
    padded[(..., above, *after)] = v[(..., slice(v.shape[axis] - highest, None), *after)]
    return padded


# Parts of error estimates: norms, ratios of distances between runs, relative errors, rounding.


_ORDER = 4


def norms(torus: Torus, v: Complex[Array, "b t components *modes"]) -> Float[Array, "b t"]:
    """The L² norm of all components together, for each sample and time."""
    xp = array_namespace(v)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = constant(torus.weights, v) * (xp.real(v) ** 2 + xp.imag(v) ** 2)
        return xp.sqrt(xp.sum(squares, axis=tuple(range(2, v.ndim))))


def contraction(change: Array, difference: Array) -> Array:
    """The ratio of the distances between runs before and after a step is halved, within [2, 2⁴]."""
    xp = array_namespace(difference)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = change / (difference + np.finfo(float).tiny)
    most = xp.full_like(ratio, 2.0**_ORDER)
    return xp.clip(xp.where(xp.isfinite(ratio), ratio, most), 2.0, 2.0**_ORDER)


def relative(difference: Array, size: Array) -> Array:
    """The difference divided by the norm of the solution; infinite if this is not finite."""
    xp = array_namespace(difference)
    with np.errstate(over="ignore", invalid="ignore"):
        error = difference / (size + np.finfo(float).tiny)
    return xp.where(xp.isfinite(error), error, xp.full_like(error, math.inf))


def rounding(
    before: Float[Array, " b"],
    size: Float[Array, "b t"],
    times: Sequence[float],
    slowest: float | Float[np.ndarray, " b"],
) -> Float[Array, "b t"]:
    """Relative error of states at some times by the rounding of earlier states.

    The rounding of a state, ε times its norm, is in all modes. It decays like the mode that decays
    the slowest: the mean does not decay without drag, even if it should be 0. Growth is left out,
    because nonlinear terms limit it; equations without these have `grown_rounding`.

    Args:
        before: The norm of each sample at time 0.
        size: The norms at the times.
        times: The times.
        slowest: The rate r <= 0 of the slowest decay e^(rt), a number or one for each sample.
    """
    xp, eps, tiny = array_namespace(size), np.finfo(float).eps, np.finfo(float).tiny
    amount, now, shares = eps * before, 0.0, list[Array]()
    for k, t in enumerate(times):
        amount = amount * constant(np.asarray(np.exp(slowest * (t - now))), size)
        amount, now = xp.maximum(amount, eps * size[:, k]), t
        vanished = (size[:, k] < tiny) & (before > 0)
        shares.append(xp.where(vanished, xp.ones_like(before), relative(amount, size[:, k])))
    return xp.stack(shares, axis=1)


def grown_rounding(
    torus: Torus,
    linear: Complex[np.ndarray, "*batch components *modes"]
    | Float[np.ndarray, "*batch components *modes"],
    before: Float[Array, "b 1"],
    size: Float[Array, "b t"],
    times: Sequence[float],
) -> Float[Array, "b t"]:
    """Relative error of e^(Lt) v₀ at some times by the rounding of v₀.

    Rounding errors of v₀ are spread over all modes, and the error of each mode grows by e^(Lt).

    Args:
        torus: The torus.
        linear: The symbol L, with an axis of samples in front if it differs from sample to sample.
        before: The norms of v₀.
        size: The norms at the times.
        times: The times.
    """
    xp, eps, weights = array_namespace(size), np.finfo(float).eps, torus.weights
    t = np.reshape(times, (-1, *[1] * weights.ndim))

    def growth(linear: np.ndarray) -> Float[np.ndarray, " times"]:
        rates = np.reshape(np.max(np.real(linear), axis=0), (1, *weights.shape))
        squares = np.sum(weights * np.exp(2 * rates * t), axis=tuple(range(1, rates.ndim)))
        return np.sqrt(squares / weights.sum())

    with np.errstate(over="ignore", invalid="ignore"):
        by_sample = linear.ndim > weights.ndim + 1
        grown = np.stack([*map(growth, linear)]) if by_sample else growth(linear)
        error = eps * constant(grown, size) * before / (size + np.finfo(float).tiny)
        error = xp.where(error > 2 * eps, error, xp.full_like(size, eps))
        overflow = ~xp.isfinite(error + size)
    return xp.where(overflow, xp.full_like(error, math.inf), error)


# Nonlinear terms whose products are computed at the points of a torus.


# a component and the symbol that multiplies its modes; None for the identity
Part = tuple[int, Num[np.ndarray, "..."] | None]
AtPoints = Float[Array, "batch *points"]
Monomial = tuple[float, tuple[int, ...]]  # a factor, and the fields of the product


@dataclass(frozen=True)
class Pseudospectral:
    """N(v) = Σ_p B_p F m_p(F⁻¹ A_1 v, F⁻¹ A_2 v, ...) + C v + c for the modes v of components.

    The fields A_f v are transformed to points by F⁻¹, polynomials m_p of the fields are evaluated
    there, and F returns to modes.

    Reference: S. A. Orszag, Stud. Appl. Math. 50 (1971), for products at points.

    The convection -u uₓ of one component is -∂ₓ F (u²/2):

    >>> from pdegen.domains import PeriodicGrid
    >>> torus = Torus((PeriodicGrid(16),))
    >>> square = Pseudospectral(torus, [[(0, None)]], [[(-0.5, (0, 0))]], [[(0, torus.d[0])]])
    >>> x = 2 * np.pi * torus.grids[0].x
    >>> change = square(torus.to_modes(np.sin(x))[None, None])
    >>> bool(np.allclose(torus.to_points(change), -2 * np.pi * np.sin(x) * np.cos(x)))
    True

    Args:
        torus: The domain.
        fields: For each field, the parts whose sum it is.
        products: For each polynomial m_p, its monomials.
        terms: For each polynomial, the parts of N to which B_p F m_p is added.
        coupling: Entries (row, column, number) of the matrix C.
        source: The modes c, shape (components, *modes), or with an axis of samples in front; NumPy
            or a tensor on the device.
        device: The device of the tensors v; None for NumPy arrays.
    """

    torus: Torus
    fields: Sequence[Sequence[Part]]
    products: Sequence[Sequence[Monomial]]
    terms: Sequence[Sequence[Part]]
    coupling: Sequence[tuple[int, int, float]] = ()
    source: Num[Array, "..."] | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if len(self.products) != len(self.terms) or not all(
            (*self.fields, *self.products, *self.terms)
        ):
            raise ValueError("a field, a product and its terms need one part or more")
        factors = {f for p in self.products for _, monomial in p for f in monomial}
        if not factors <= set(range(len(self.fields))):
            raise ValueError(f"expected fields below {len(self.fields)}, got {sorted(factors)}")

    @property
    def components(self) -> set[int]:
        """The components that N reads or changes."""
        parts = {k for parts in (*self.fields, *self.terms) for k, _ in parts}
        return parts | {k for row, column, _ in self.coupling for k in (row, column)}

    @cached_property
    def _like(self) -> Array:
        return empty((0,), np.float64, self.device)

    @cached_property
    def _symbols(self) -> tuple[list[list[Array | float]], ...]:
        """The symbols of fields and terms on the device."""

        def moved(parts: Sequence[Part]) -> list[Array | float]:
            return [1.0 if s is None else constant(s, self._like) for _, s in parts]

        return [moved(parts) for parts in self.fields], [moved(parts) for parts in self.terms]

    @cached_property
    def _constant(self) -> Array | None:
        source = self.source  # a tensor may carry derivatives
        return constant(source, self._like) if isinstance(source, np.ndarray) else source

    def __call__(
        self, v: Complex[Array, "batch components *modes"]
    ) -> Complex[Array, "batch components *modes"]:
        xp = array_namespace(v)
        of_fields, of_terms = self._symbols
        sums = list[list[Array]]([] for _ in range(v.shape[1]))
        if self.products:
            values = self.torus.to_points(xp.stack([
                reduce(add, (s * v[:, k] for (k, _), s in zip(parts, symbols, strict=True)))
                for parts, symbols in zip(self.fields, of_fields, strict=True)
            ], axis=1))  # fmt: skip
            modes = self.torus.to_modes(
                xp.stack([_polynomial(values, p) for p in self.products], axis=1)
            )
            for p, (parts, symbols) in enumerate(zip(self.terms, of_terms, strict=True)):
                for (component, _), symbol in zip(parts, symbols, strict=True):
                    sums[component].append(symbol * modes[:, p])
        for row, column, factor in self.coupling:
            sums[row].append(factor * v[:, column])
        zero = xp.zeros_like(v[:, 0])
        change = xp.stack([reduce(add, parts) if parts else zero for parts in sums], axis=1)
        return change if self._constant is None else change + self._constant


def _polynomial(
    fields: Float[Array, "batch fields *points"], monomials: Sequence[Monomial]
) -> AtPoints:
    """The sum of monomials of the fields at the points."""

    def value(factor: float, factors: tuple[int, ...]) -> Array:
        product = reduce(mul, (fields[:, f] for f in factors))
        return product if factor == 1 else factor * product

    return reduce(add, (value(*monomial) for monomial in monomials))


@dataclass(frozen=True)
class Rates:
    """Rates of change Σ_k Re(conj(g_k) v_k) - Σ_k d_k |v_k|² of watched quantities.

    Args:
        linear: g of each quantity, shape (watched, components, *modes), or with an axis of samples
            in front.
        quadratic: d of each quantity, in the same form.
    """

    linear: Complex[np.ndarray, "..."]
    quadratic: Float[np.ndarray, "..."]

    def __call__(
        self, v: Complex[Array, "batch components *modes"]
    ) -> Float[Array, "batch watched"]:
        xp, v = array_namespace(v), v[:, None]
        g, d = constant(self.linear, v), constant(self.quadratic, v)
        work = xp.real(g) * xp.real(v) + xp.imag(g) * xp.imag(v)
        work = work - d * (xp.real(v) ** 2 + xp.imag(v) ** 2)
        return xp.sum(work, axis=tuple(range(2, work.ndim)))


def wave_numbers(grid: PeriodicGrid) -> Float[np.ndarray, " k"]:
    """Angular wave numbers 2πk/L of the modes k = 0 ... n/2.

    Raises ValueError if n is odd or less than 4.
    """
    if grid.n < 4 or grid.n % 2:
        raise ValueError(f"a spectral method needs an even number of points >= 4, got {grid.n}")
    return 2 * np.pi * np.arange(grid.n // 2 + 1) / grid.length


def derivative_symbol(grid: PeriodicGrid) -> Complex[np.ndarray, " k"]:
    """2πik/L, the symbol of d/dx; 0 for the mode n/2, which has no derivative on the grid.

    >>> grid = PeriodicGrid(16, length=2.0)
    >>> u_hat = np.fft.rfft(np.sin(np.pi * grid.x))
    >>> du = np.fft.irfft(derivative_symbol(grid) * u_hat)
    >>> np.allclose(du, np.pi * np.cos(np.pi * grid.x))
    True
    """
    symbol = 1j * wave_numbers(grid)
    symbol[-1] = 0
    return symbol


def antiderivative_symbol(grid: PeriodicGrid) -> Complex[np.ndarray, " k"]:
    """L/(2πik), the inverse of d/dx on functions without mean; 0 for the modes 0 and n/2."""
    symbol = derivative_symbol(grid)
    inside = symbol != 0
    symbol[inside] = 1 / symbol[inside]
    return symbol


def interpolated(
    u: Float[np.ndarray, "..."], points: int, dimension: int = 1
) -> Float[np.ndarray, "..."]:
    """The values on a finer grid of the trigonometric interpolant of u.

    Among all interpolants, this one has the smallest wave numbers.

    Args:
        u: Values at n points along each of the last `dimension` axes.
        points: Number of points of the result along each of these axes, at least n.
        dimension: Number of axes along which u is interpolated.

    >>> x = np.arange(4) / 4
    >>> fine = interpolated(np.cos(2 * np.pi * x), 8)
    >>> bool(np.allclose(fine, np.cos(2 * np.pi * np.arange(8) / 8)))
    True
    """
    for axis in range(-dimension, 0):
        n = u.shape[axis]
        v = np.moveaxis(np.fft.rfft(u, axis=axis), axis, -1)
        if n % 2 == 0 and points > n:
            v = np.concatenate([v[..., :-1], v[..., -1:] / 2], axis=-1)  # split over n/2 and -n/2
        u = np.moveaxis(np.fft.irfft(v, points) * (points / n), -1, axis)
    return u
