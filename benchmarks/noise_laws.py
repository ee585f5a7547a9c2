"""Inversions of two-phase Darcy flow that know the law of the noise, or only its deviation:
`python -m benchmarks.noise_laws [--kinds KIND ...] [--samples 100]`.

The coefficient has the law of recipe darcy-421, thresholded at the centres of 43 x 43 cells. u is
solved on 129 x 129 cells, and the data are its values at the centres of the 43 x 43. The table has
the share of wrong cells, the mean over samples and its standard error, and the mean of the
difference of the two.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import inversions
from pdegen.inverse.classical import InverseProblem
from pdegen.sampling.gaussian import SquareGaussianField
from pdegen.sampling.noise import Noise
from pdegen.sampling.noise_law import NoiseLaw

_PHASES, _FINE, _CELLS = (3.0, 12.0), 129, 43
_KNOWN = 200  # samples before the inverted ones: for σ(x), and for the errors of the models
_WEIGHT = 0.3
_METHODS = ("maximum a posteriori", "level set", "total variation")
_KINDS = {
    "ensemble": {"level": 0.1},
    "multiplicative": {"level": 0.1},
    "correlated": {"level": 0.1},
    "student": {"level": 0.1, "freedom": 2.5},
    "impulse": {"level": 0.02},
    "shot": {"level": 0.1},
    "quantised": {"level": 0.1, "base": 0.01},
    "drift": {"level": 0.1},
    "blur": {"level": 0.01},
    "missing": {"level": 0.1},
}


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients on 43 x 43 cells, and u at their centres."""
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, _FINE)
    solver, a, u = FiniteVolume(CellGrid(_FINE)), list[np.ndarray](), list[np.ndarray]()
    for number in range(count):
        upper = field(CellGrid(_CELLS), 0, [number])[0] >= 0
        a.append(np.where(upper, _PHASES[1], _PHASES[0]))
        u.append(solver(np.kron(a[-1], np.ones((3, 3)))[None])[0][1::3, 1::3])
    return np.stack(a), np.stack(u)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(_KINDS), default=list(_KINDS))
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--methods", nargs="*", choices=_METHODS, default=_METHODS[:1])
    options = parser.parse_args()
    a, u = samples(_KNOWN + options.samples)
    known, clean = u[:_KNOWN], u[_KNOWN:]
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, _FINE)
    setting = InverseProblem(CellGrid(_CELLS).x, a[:_KNOWN], known)
    methods, std, middle = inversions(setting, field, _PHASES, 1.0), known.std(axis=0), sum(_PHASES)
    print("| noise | method | deviation only | law | difference |\n|---|---|---|---|---|")
    for kind in options.kinds:
        noise = Noise.parse({"kind": kind, **_KINDS[kind]}, kind).build()
        data = noise(clean, 0, range(_KNOWN, len(u)), std)
        laws = [noise.law(d, known, std) for d in data]
        for name in options.methods:
            invert = methods[name].with_weight(_WEIGHT)

            def area(law: NoiseLaw, d: np.ndarray, true: np.ndarray, invert=invert) -> float:
                return float(np.mean((invert(d, law).a > middle / 2) != (true > middle / 2)))

            wrong = [
                np.array([*map(area, some, data, a[_KNOWN:])])
                for some in (map(NoiseLaw.of, (law.std for law in laws)), laws)
            ]
            error = partial(np.std, ddof=1)
            cells = (
                f"{e.mean():.4f} ± {error(e) / len(e) ** 0.5:.4f}"
                for e in (*wrong, wrong[1] - wrong[0])
            )
            keys = ", ".join(f"{key} {value}" for key, value in _KINDS[kind].items())
            print(f"| {kind}, {keys} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
