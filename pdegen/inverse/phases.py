"""Maximum a posteriori estimates of two phases from noisy data, on successively finer cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.inverse.classical import Composition, Observation, interpolation
from pdegen.inverse.gaussian import Coefficients, LowRankCovariance, ModelError, Prior
from pdegen.inverse.tikhonov import newton_step, settled
from pdegen.sampling.noise_law import NoiseLaw

Field = Float[np.ndarray, "n n"]
_FITS = 1.02  # misfit that ends the steps: further steps fit noise, and the error grows again
_SETTLED = 1e-3  # relative decrease of the objective over three steps that ends them
_CLIPPED = 0.02  # fractions nearer to 0 or 1 are clipped
_EDGE, _BLUR = 0.2, 0.1  # width δ of such fractions, and the error of g from them, in deviations
_SHORTEST = 1e-3  # smallest step length of the line search


class Differentiated(Protocol):
    """The solution u for phases p, with its derivatives with respect to p."""

    @property
    def u(self) -> Field: ...

    def jvp(self, dp: Field, /) -> Field: ...

    def vjp(self, v: Field, /) -> Field: ...


class Forward(Protocol):
    """The map from the fraction p of the upper phase in each cell to the solution u."""

    def linearise(self, p: Field, /) -> Differentiated: ...


@dataclass(frozen=True)
class GridModel:
    """A model of the data on one grid of cells, with the parameters of its inversion steps."""

    prior: Prior  # the distribution of g, whose sign is the phase
    forward: Forward  # from phases to u
    observation: Observation  # from u to data
    error: ModelError  # the distribution of the model's error
    widths: tuple[float, ...]  # widths δ of the steps, in deviations of g
    # largest number of further steps of the last width, which end where the misfit is that of the
    # noise (the discrepancy principle), or where the objective hardly decreases
    extra_steps: int = 0

    def observed(self, law: NoiseLaw) -> GridModel:
        """The model of the data K H u, where K is the observation of the noise law."""
        by = law.observation
        if by is None:
            return self
        observation = Composition(self.observation, by)
        return replace(self, observation=observation, error=self.error.observed(by))


@dataclass
class Work:
    """The cost of an inversion, measured by numbers of solves."""

    linearised: int = 0  # solves that prepare derivatives
    derivatives: int = 0  # tangent and adjoint solves
    steps: int = 0


@dataclass(frozen=True)
class PhaseEstimate:
    """An estimate of the phases."""

    probability: Field  # of the upper phase, in each cell
    coefficients: Coefficients  # ξ
    width: float  # δ of the last step
    misfit: float  # rᵀ R⁻¹ r/m for m data: near 1 if the covariance R is right
    work: Work
    # whether the steps on the finest cells ended by their criterion; if not, at their limit, or
    # because no step length decreased the objective
    converged: bool


@dataclass(frozen=True)
class PhaseInversion:
    """Maximum a posteriori estimate of a Gaussian field g whose sign determines the phase.

    The data are d = H u(p) + e. The error e ~ N(m, R) is the sum of the noise and the model error,
    and g has a Gaussian prior. The phase jumps where g changes sign, so it has no derivative with
    respect to g. It is replaced by p = Φ(g/δ), the probability that a Gaussian variable of mean g
    and deviation δ is positive. Each step minimises

        ½ rᵀ R⁻¹ r + ½ λ |ξ|²,   r = d - m - H u(Φ(g(ξ)/δ)),

    in the Gauss-Newton approximation, where the coefficients ξ of g are independent N(0, 1)
    variables in the prior, and λ is the weight of the prior. The width δ decreases from step to
    step, first on coarse cells and then on finer ones. With the last width the iteration goes on
    until the misfit is as large as the noise explains, because further steps would fit the noise,
    or until three steps together decrease the objective by less than 0.1 %.

    References: M. Iglesias, Y. Lu and A. Stuart, A Bayesian level set method for geometric inverse
    problems, Interfaces Free Bound. 18 (2016); T. Bui-Thanh et al., A computational framework for
    infinite-dimensional Bayesian inverse problems I, SIAM J. Sci. Comput. 35 (2013).
    """

    models: tuple[GridModel, ...]  # from coarse to fine, of the same data
    # λ, 1 in the posterior density; a smaller weight shrinks g less towards 0, where p is 1/2
    weight: float = 0.3
    limit: int = 60  # largest number of iterations for the linear system of a step
    rtol: float = 0.03  # relative tolerance of the linear systems

    def __call__(
        self, data: np.ndarray, noise: NoiseLaw | np.ndarray, start: Coefficients | None = None
    ) -> PhaseEstimate:
        """Estimate the phases of one sample.

        Args:
            data: The data d.
            noise: Law of the noise, or the deviation of independent Gaussian noise. A variance that
                depends on prediction and residual is renewed before each step.
            start: Initial coefficients ξ. If they are given, only the finest model is used.
        """
        law = NoiseLaw.of(noise)
        models = self.models if start is None else self.models[-1:]
        xi, work = models[0].prior.zero if start is None else start, Work()
        for model in models[:-1]:
            descent = _Descent(self, model, data, law, work)
            xi = descent.run(model.prior.transferred(xi))
        descent = _Descent(self, models[-1], data, law, work)
        return descent.estimate(descent.run(models[-1].prior.transferred(xi)))

    def start(self, p: Float[np.ndarray, "k k"]) -> Coefficients:
        """Initial coefficients whose phases approximate the fractions p of the upper phase.

        The fractions may be given on any k x k cells; an operator can predict them, for example.
        """
        prior = self.models[-1].prior
        scale = float(np.sqrt(np.mean(prior.std**2)))
        clipped = np.clip(p, _CLIPPED, 1 - _CLIPPED)
        return prior.nearest(_EDGE * scale * scipy.special.ndtri(clipped), _BLUR * scale)


class _Errors:
    """The covariance R of noise and model error for the weights of a step."""

    def __init__(self, error: ModelError, law: NoiseLaw, data: np.ndarray) -> None:
        self.error, self.law, self.data = error, law, data - error.mean
        self.size = float(np.sqrt(np.mean(data**2)))
        self.covariance: LowRankCovariance = error.with_noise(law, self.size)
        self.correction, self.explained = 0.0, True

    def renew(self, r: np.ndarray) -> None:
        """Compute R for the residual r, if the law of the noise depends on it."""
        if self.law.is_fixed:
            return
        self.covariance = self.error.with_noise(self.law, self.size, self.data - r, r)
        law = self.error.added_to(self.law, self.size)
        self.correction = law.correction(self.data - r, r)
        self.explained = law.explains(self.data - r, r)

    def fits(self, r: np.ndarray) -> bool:
        """Whether the residual is as small as the noise explains."""
        return self.misfit(r) <= _FITS and self.explained

    def weighted(self, r: np.ndarray) -> np.ndarray:
        """R⁻¹ r."""
        return self.covariance.inverse(r)

    def misfit(self, r: np.ndarray) -> float:
        """rᵀ R⁻¹ r/m for m measured data."""
        return float(np.mean(r * self.weighted(r))) / self.law.present


class _Descent:
    """The Gauss-Newton iteration on the cells of one model."""

    def __init__(
        self,
        method: PhaseInversion,
        model: GridModel,
        data: np.ndarray,
        law: NoiseLaw,
        work: Work,
    ) -> None:
        self.method, self.model, self.work = method, model.observed(law), work
        self.errors = _Errors(self.model.error, law, data)
        self.data = self.errors.data
        self.scale = float(np.sqrt(np.mean(model.prior.std**2)))
        self.width = self.scale
        self.converged = False

    def run(self, xi: Coefficients) -> Coefficients:
        model, costs = self.model, list[float]()
        for width in model.widths:
            self.width = width * self.scale
            xi = self.step(xi)
        for _ in range(model.extra_steps):
            r = self.residual(xi)
            self.errors.renew(r)
            costs.append(self.cost(r, self.errors.weighted(r), xi) + self.errors.correction)
            self.converged = self.errors.fits(r) or settled(costs, _SETTLED)
            moved = xi if self.converged else self.step(xi)
            if moved is xi:
                break
            xi = moved
        return xi

    def step(self, xi: Coefficients) -> Coefficients:
        self.work.steps += 1
        model, prior = self.model, self.model.prior
        p, slope = self.phase(xi)
        at = self.linearised(p)
        r = self.data - model.observation(at.u)
        self.errors.renew(r)

        def transposed(weighted: np.ndarray) -> Coefficients:
            self.work.derivatives += 1
            return prior.transposed(slope * at.vjp(model.observation.transposed(weighted)))

        def hessian(v: Coefficients) -> Coefficients:
            self.work.derivatives += 1
            change = model.observation(at.jvp(slope * prior.field_of(v)))
            return self.method.weight * v + transposed(self.errors.weighted(change))

        weighted = self.errors.weighted(r)
        downhill = transposed(weighted) - self.method.weight * xi
        step = newton_step(hessian, downhill, self.method.limit, self.method.rtol)
        cost, length = self.cost(r, weighted, xi), 1.0
        while length >= _SHORTEST:
            moved = xi + length * step
            r = self.residual(moved)
            if self.cost(r, self.errors.weighted(r), moved) < cost:
                return moved
            length /= 2
        return xi

    def phase(self, xi: Coefficients) -> tuple[Field, Field]:
        """The fraction p = Φ(g/δ) and its derivative dp/dg."""
        z = self.model.prior.field_of(xi) / self.width
        return scipy.special.ndtr(z), np.exp(-0.5 * z**2) / (np.sqrt(2 * np.pi) * self.width)

    def linearised(self, p: Field) -> Differentiated:
        self.work.linearised += 1
        return self.model.forward.linearise(p)

    def residual(self, xi: Coefficients) -> np.ndarray:
        p, _ = self.phase(xi)
        return self.data - self.model.observation(self.linearised(p).u)

    def estimate(self, xi: Coefficients) -> PhaseEstimate:
        p, _ = self.phase(xi)
        misfit = self.errors.misfit(self.residual(xi))
        return PhaseEstimate(p, xi, self.width, misfit, self.work, self.converged)

    def cost(self, r: np.ndarray, weighted: np.ndarray, xi: Coefficients) -> float:
        return 0.5 * float(np.sum(r * weighted) + self.method.weight * np.sum(xi**2))


# Reconstruction of two phases from noisy data with a level-set function and shape derivatives.


_fft: Any = scipy.fft  # not in its stubs
_COARSE_STEPS = 3  # largest number of steps on coarse cells
_RESIDUAL_LEFT = 0.7  # share of the residual at which the iterations of a step stop
_ITERATIONS = 10  # largest number of iterations of a step
_SHORTEST_FLOW = 0.1  # smallest step length of the line search


@dataclass(frozen=True)
class ShapeEstimate:
    """The phases that a level-set method reconstructs."""

    fraction: Field  # p of the upper phase, in each cell
    level_set: Field  # φ
    misfit: float  # rᵀ R⁻¹ r/m for m data: near 1 if the covariance R is right
    solves: int  # number of linear systems solved
    steps: int
    # whether the steps on the finest cells ended by their criterion; if not, at their limit, or
    # because no step length decreased the misfit
    converged: bool


@dataclass(frozen=True)
class LevelSet:
    """Level-set method: the region {φ > 0} moves until it fits the data. It needs no prior.

    Let m and R be the mean and the covariance of the data error, that is, of the noise and the
    model error. For data d, observed by the map H, the residual is r = d - m - H u(p). The misfit
    ½ rᵀ R⁻¹ r has the derivative ∫ g δ(φ) ψ in the direction ψ. Here g is the derivative of the
    misfit with respect to the phase (one adjoint solve), and δ(φ) is concentrated on the interface.
    On cells of size h, p = Φ(φ/h) is the fraction of the upper phase in a cell near the interface,
    and δ(φ) = Φ'(φ/h)/h. The gradient is taken in H¹, with the scalar product

        ∫ φψ + ℓ² ∇φ·∇ψ,

    so that the interface moves at a smooth speed. Each step solves the linearised equations by
    conjugate gradients until the residual has fallen to 0.7 of its initial norm. If each
    step had one iteration, the method would be steepest descent and would need several times as
    many steps. Two choices regularise the result: each step has few iterations, and the method
    stops when rᵀ R⁻¹ r is at most 1.02 times the number of data.

    The method starts on the coarsest cells with φ = 0, so every cell is at the interface. φ is not
    reinitialised to a distance function between steps. Reinitialisation fixes small regions too
    early; in trials it increased the error by a factor of 1.5 to 3. Therefore |∇φ| can have any
    value, and the interface can be several cells wide where the data do not determine its position.

    Raises:
        ValueError: If the smoothing is not positive.

    References: F. Santosa, A level-set approach for inverse problems involving obstacles, ESAIM
    Control Optim. Calc. Var. 1 (1996); K. Ito, K. Kunisch and Z. Li, Level-set function approach to
    an inverse interface problem, Inverse Problems 17 (2001); M. Burger, A framework for the
    construction of level set methods for shape optimization and reconstruction, Interfaces Free
    Bound. 5 (2003), for the gradient in H¹; A. Rieder, On the regularization of nonlinear
    ill-posed problems via inexact Newton iterations, Inverse Problems 15 (1999), for the steps.
    """

    models: tuple[GridModel, ...]  # from coarse to fine; only the grids of their priors are used
    smoothing: float = 0.1  # ℓ > 0, for a square of side 1
    limit: int = 200  # largest number of steps on the finest cells

    def __post_init__(self) -> None:
        if not self.smoothing > 0:
            raise ValueError(f"smoothing must be positive, got {self.smoothing}")

    def __call__(
        self, data: Float[np.ndarray, " *data"], noise: NoiseLaw | Float[np.ndarray, " *data"]
    ) -> ShapeEstimate:
        """Reconstruct the phases of one sample.

        `noise` is the law of the noise, or the deviation of independent Gaussian noise, 0 if the
        data are exact. A variance that depends on prediction and residual is renewed before each
        step.
        """
        law = NoiseLaw.of(noise)
        phi, solves, steps = np.zeros((self.models[0].prior.grid.n,) * 2), 0, 0
        for model in self.models[:-1]:
            motion = _Motion(model, self.smoothing, data, law)
            phi = motion.run(_interpolated(phi, model.prior.grid), _COARSE_STEPS)
            solves, steps = solves + motion.solves, steps + motion.steps
        motion = _Motion(self.models[-1], self.smoothing, data, law)
        phi = motion.run(_interpolated(phi, self.models[-1].prior.grid), self.limit)
        misfit, (fraction, _) = motion.errors.misfit(motion.residual(phi)), motion.fraction(phi)
        solves, steps = solves + motion.solves, steps + motion.steps
        return ShapeEstimate(fraction, phi, misfit, solves, steps, motion.converged)


class _Motion:
    """The level-set iteration on the cells of one model."""

    def __init__(
        self,
        model: GridModel,
        smoothing: float,
        data: np.ndarray,
        noise: NoiseLaw | np.ndarray,
    ) -> None:
        law = NoiseLaw.of(noise)
        self.model, self.solves, self.steps = model.observed(law), 0, 0
        self.converged, n = False, model.prior.grid.n
        self.errors = _Errors(self.model.error, law, data)
        self.data = self.errors.data
        eigenvalues = (2 * n * np.sin(np.pi * np.arange(n) / (2 * n))) ** 2  # of -Δ on cells
        self.damping = (1 + smoothing**2 * (eigenvalues[:, None] + eigenvalues)) ** -0.5

    def run(self, phi: Field, limit: int) -> Field:
        misfits = list[float]()
        for _ in range(limit):
            fraction, delta = self.fraction(phi)
            at = self.model.forward.linearise(fraction)
            self.solves += 1
            r = self.data - self.model.observation(at.u)
            self.errors.renew(r)
            misfit = self.errors.misfit(r)
            misfits.append(misfit + 2 * self.errors.correction / r.size)
            self.converged = self.errors.fits(r) or settled(misfits, _SETTLED)
            if self.converged:
                break
            change = self.step(r, lambda v, at=at, delta=delta: at.jvp(delta * v),
                               lambda w, at=at, delta=delta: delta * at.vjp(w))  # fmt: skip
            length = 1.0
            while self.errors.misfit(self.residual(phi + length * change)) >= misfit:
                length /= 2
                if length < _SHORTEST_FLOW:
                    return phi
            phi, self.steps = phi + length * change, self.steps + 1
        return phi

    def step(
        self, r: np.ndarray, jvp: Callable[[Field], Field], vjp: Callable[[Field], Field]
    ) -> Field:
        """The change ψ = S w of φ, where S = (1 - ℓ²Δ)^-½.

        Conjugate gradients minimise the norm of r - J S w in the scalar product of R⁻¹, where J is
        the derivative of the data. `jvp` and `vjp` apply the derivative of u and its transpose.
        """
        w, goal = np.zeros_like(self.damping), _RESIDUAL_LEFT**2 * self.errors.misfit(r)
        gradient = self.gradient(r, vjp)
        direction, rho = gradient, float(np.sum(gradient**2))
        for _ in range(_ITERATIONS):
            change = self.model.observation(jvp(self.smoothed(direction)))
            self.solves += 1
            power = float(np.sum(change * self.errors.weighted(change)))
            if not power > 0:  # without an interface, nothing moves
                break
            alpha = rho / power
            w, r = w + alpha * direction, r - alpha * change
            if self.errors.misfit(r) <= goal:
                break
            gradient = self.gradient(r, vjp)
            before, rho = rho, float(np.sum(gradient**2))
            direction = gradient + rho / before * direction
        return self.smoothed(w)

    def gradient(self, r: np.ndarray, vjp: Callable[[Field], Field]) -> Field:
        """Cosine coefficients of S Jᵀ R⁻¹ r, computed with one adjoint solve."""
        self.solves += 1
        down = vjp(self.model.observation.transposed(self.errors.weighted(r)))
        return self.damping * _fft.dctn(down, norm="ortho")

    def smoothed(self, w: Field) -> Field:
        return _fft.idctn(self.damping * w, norm="ortho")

    def fraction(self, phi: Field) -> tuple[Field, Field]:
        """The fraction p = Φ(φ/h) of the upper phase in each cell, and δ = dp/dφ."""
        z, n = len(phi) * phi, len(phi)
        return scipy.special.ndtr(z), n * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)

    def residual(self, phi: Field) -> np.ndarray:
        self.solves += 1
        fraction, _ = self.fraction(phi)
        return self.data - self.model.observation(self.model.forward.linearise(fraction).u)


def _interpolated(phi: Field, grid: CellGrid) -> Field:
    """Interpolate φ linearly to the centres of another grid."""
    matrix = interpolation(CellGrid(len(phi)), grid.x)
    matrix = matrix / matrix.sum(axis=1, keepdims=True)
    return matrix @ phi @ matrix.T
