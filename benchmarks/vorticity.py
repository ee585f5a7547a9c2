"""The vorticity solver against exponax and against the scheme of the published files.

    python -m benchmarks.vorticity [--rounds 5] [--points 64 128 256]

All solve the same random flows without a force, in float64, on one CPU thread, to the same time.
Each takes the smallest power of two of steps whose error in time is at most 1e-6 for every sample:
relative L2, against our solver with 8 times as many steps. exponax steps in Fourier space, vmapped
and jitted, its fastest mode. The published files come from Crank-Nicolson for the viscosity and
forward Euler for the convection (Z. Li et al., Fourier Neural Operator, ICLR 2021, section A.3.3).
This method has order 1: its number of steps is extrapolated from its errors at 512 and 1024 steps,
and its time from that of 64 steps. Our time is given without and with the error estimate.
Coefficients and compilation are not timed. Figures are medians of processor time, and ratios
within interleaved rounds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Complex, Float

from benchmarks.exponax_burgers import ONE_THREAD
from benchmarks.extras import needed
from benchmarks.history import show
from benchmarks.timing import interleaved, ratio, rounded
from pdegen.domains import PeriodicGrid
from pdegen.equations.vorticity.solver import Flow
from pdegen.numerics.device import reuse_memory
from pdegen.numerics.spectral import Torus
from pdegen.sampling.gaussian import TorusGaussianField

CASES = {64: (1e-3, 1.0, 8), 128: (1e-4, 1.0, 8), 256: (1e-5, 0.5, 8)}  # viscosity, time, samples
TOLERANCE = 1e-6
_MOST = 2**10  # largest number of steps that is tried

Values = Float[np.ndarray, "samples n n"]
Solve = Callable[[], Any]
Steps = Callable[[int], Solve]  # number of steps -> solver


def ours(flow: Flow, w0: Complex[np.ndarray, "b 1 *modes"], duration: float) -> Steps:
    def of(steps: int) -> Solve:
        discrete = flow.solver(w0, 1.0, 1.0).discrete

        def solve() -> Values:
            v, _ = discrete.march(w0, [duration], duration / steps)
            return flow.torus.to_points(v[:, 0, 0])

        return solve

    return of


def certified(flow: Flow, w0: Complex[np.ndarray, "b 1 *modes"], duration: float) -> Steps:
    """Our solver with the error estimate of each sample."""

    def of(steps: int) -> Solve:
        solver = flow.solver(w0, duration / steps, np.inf)
        return lambda: flow.torus.to_points(solver.solve(w0, [duration]).v[:, 0, 0])

    return of


def with_exponax(flow: Flow, w0: Values, duration: float) -> Steps:
    """ETDRK4 of exponax, whose velocity has the opposite sign."""
    exponax, jax = needed("exponax", "exponax"), needed("jax", "exponax")
    jax.config.update("jax_enable_x64", True)
    fields, n = jax.numpy.asarray(w0[:, None]), flow.torus.points[0]

    def of(steps: int) -> Solve:
        stepper = exponax.stepper.NavierStokesVorticity(
            2, 1.0, n, duration / steps, diffusivity=flow.viscosity, order=4,
            vorticity_convection_scale=-1.0,
        )  # fmt: skip
        march = exponax.repeat(stepper.step_fourier, steps)

        def solution(w: Any) -> Any:
            v = march(exponax.fft(w, num_spatial_dims=2))
            return exponax.ifft(v, num_spatial_dims=2, num_points=n)

        compiled = jax.jit(jax.vmap(solution))
        return lambda: np.asarray(compiled(fields).block_until_ready())[:, 0]

    return of


def published_scheme(flow: Flow, w0: Values, duration: float) -> Steps:
    """Crank-Nicolson and forward Euler in full Fourier space, with a dealiased product."""
    n = flow.torus.points[0]
    k = 2 * np.pi * np.fft.fftfreq(n, 1 / n)[:, None]
    m = 2 * np.pi * np.arange(n // 2 + 1)[None]
    square = k**2 + m**2
    inverse = np.divide(1, square, out=np.zeros_like(square), where=square > 0)
    keep = (abs(k) <= 2 * np.pi * n / 3) & (m <= 2 * np.pi * n / 3)

    def of(steps: int) -> Solve:
        h = duration / steps
        damped, divided = 1 - h / 2 * flow.viscosity * square, 1 + h / 2 * flow.viscosity * square

        def solve() -> Values:
            frames = []
            for start in w0:
                w = np.fft.rfft2(start)
                for _ in range(steps):
                    psi = inverse * w
                    u, v = np.fft.irfft2(1j * m * psi), np.fft.irfft2(-1j * k * psi)
                    w_x, w_y = np.fft.irfft2(1j * k * w), np.fft.irfft2(1j * m * w)
                    w = (damped * w - h * keep * np.fft.rfft2(u * w_x + v * w_y)) / divided
                frames.append(np.fft.irfft2(w))
            return np.stack(frames)

        return solve

    return of


def fewest(stepping: Steps, exact: Values, torus: Torus) -> tuple[int, float]:
    """Smallest power of two of steps that meets the tolerance, and its error.

    Raises:
        ValueError: If the error is still too large at the largest number of steps.
    """
    steps = 2
    while steps <= _MOST:
        largest_error = error(stepping(steps)(), exact, torus)
        if largest_error <= TOLERANCE:
            return steps, largest_error
        steps *= 2
    raise ValueError(f"the error is above {TOLERANCE:g} at {_MOST} steps")


def error(w: Values, exact: Values, torus: Torus) -> float:
    """Relative L2 error of the worst sample in the modes that are free of aliasing.

    exponax returns other modes as well. The error is infinite if steps are unstable.
    """
    w = torus.to_points(torus.to_modes(w))
    off = np.linalg.norm(w - exact, axis=(1, 2)) / np.linalg.norm(exact, axis=(1, 2))
    return float(off.max()) if np.isfinite(off).all() else float("inf")


def compared(n: int, rounds: int) -> dict[str, Any]:
    """Steps, errors and processor time of every solver on n x n points."""
    viscosity, duration, samples = CASES[n]
    reuse_memory()  # as in solvers
    torus = Torus((PeriodicGrid(n),) * 2)
    flow = Flow(torus, viscosity)
    field = TorusGaussianField(2**0.5 * 7**1.5, 7.0, 2.5, torus.highest[0] // 2)
    modes = field.coefficients(torus, 0, range(samples))[:, None]
    w0 = torus.to_points(modes[:, 0])
    stepping = {
        "ours": ours(flow, modes, duration),
        "ours with its error estimate": certified(flow, modes, duration),
        "exponax, ETDRK4": with_exponax(flow, w0, duration),
    }
    with np.errstate(all="ignore"):
        steps, _ = fewest(stepping["ours"], stepping["ours"](_MOST)(), torus)
        exact = stepping["ours"](8 * steps)()
        chosen = {name: fewest(one, exact, torus) for name, one in stepping.items()}
    published = published_scheme(flow, w0[:1], duration)
    rates = [steps * error(published(steps)(), exact[:1], torus) for steps in (512, 1024)]
    needed_steps = rates[1] / TOLERANCE  # steps, for the error of order 1 is rates / steps
    jobs = {name: stepping[name](steps) for name, (steps, _) in chosen.items()}
    jobs |= {"published": published(64)}
    seconds = interleaved(jobs, rounds, clock=time.process_time)
    seconds["published"] = [s * needed_steps / 64 * samples for s in seconds["published"]]
    figures: dict[str, Any] = {"viscosity": viscosity, "time": duration, "samples": samples}
    for name in (*stepping, "published"):
        figures[name] = {
            "steps": chosen[name][0] if name in chosen else round(needed_steps),
            "error": rounded(chosen[name][1]) if name in chosen else TOLERANCE,
            "ms a sample": rounded(1e3 * float(np.median(seconds[name])) / samples),
            "/ ours": ratio(seconds, name, "ours"),
        }
    figures["order of the published scheme"] = rounded(float(np.log2(2 * rates[0] / rates[1])))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--points", type=int, nargs="+", default=list(CASES), choices=list(CASES))
    options = parser.parse_args()
    os.environ.update(ONE_THREAD)  # before jax is imported
    needed("exponax", "exponax")
    show("vorticity", {f"{n} x {n}": compared(n, options.rounds) for n in options.points})


if __name__ == "__main__":
    main()
