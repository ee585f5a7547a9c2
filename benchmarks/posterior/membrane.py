"""The membrane of Aristoff and Bangerth: 64 values of a coefficient from 169 displacements.

-div(a grad u) = 10 on (0,1)², u = 0 on the boundary. a = θ_{8j+i} on the block (i, j) along
(x, y) of 8 x 8 blocks. Bilinear elements on 32 x 32 squares give z = u at the points (k, l)/14,
k, l = 1 ... 13. The data are ẑ (`membrane.json`) with the deviation 0.05.

The prior is exp(-½|log θ|²/2²). The programs of the gallery sample it as a density of θ: they
multiply the acceptance by Π θ'_k/θ_k, so log θ_k ~ N(4, 4). As a density of log θ it is N(0, 4).

References: D. Aristoff and W. Bangerth, A benchmark for the Bayesian inversion of coefficients in
partial differential equations, SIAM Rev. 65 (2023), arXiv:2102.07263; MCMC-Laplace of the deal.II
code gallery.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from benchmarks.posterior.cases import CHAIN_SEED
from benchmarks.posterior.diagnostics import bulk_ess, mean_error, split_r_hat
from benchmarks.posterior.hamiltonian import Hamiltonian
from pdegen.domains import CellGrid
from pdegen.equations.darcy.bilinear import BilinearElements, BilinearFlow, BilinearFlowAt
from pdegen.sampling.gaussian import NormalStream

BLOCKS, SENSORS = 8, 13  # along each axis
NOISE, PRIOR = 0.05, 2.0  # deviations of the data and of log θ
FLOW = BilinearFlow(BilinearElements(CellGrid(BLOCKS), 4), np.arange(1, SENSORS + 1) / 14, 10.0)
DATA = np.array(json.loads(Path(__file__).with_suffix(".json").read_text())["z"])

Theta = Float[np.ndarray, "64"]
Density = Literal["theta", "log-theta"]


def at(theta: Theta) -> BilinearFlowAt:
    """The displacements, with derivatives."""
    return FLOW.linearise(np.reshape(theta, (BLOCKS, BLOCKS)).T)


def log_likelihood(theta: Theta) -> float:
    """-½ |z(θ) - ẑ|²/0.05²."""
    return -0.5 * float(np.sum((at(theta).u.ravel() - DATA) ** 2)) / NOISE**2


def log_prior(theta: Theta) -> float:
    """-½ |log θ|²/2²."""
    return -0.5 * float(np.sum(np.log(theta) ** 2)) / PRIOR**2


@dataclass(frozen=True)
class Posterior:
    """The posterior of ξ = (log θ - m)/2, which is N(0, I) by the prior.

    Args:
        density: Variable of which the prior is a density: "theta", m = 4, or "log-theta", m = 0.
    """

    density: Density

    def theta(self, xi: Theta) -> Theta:
        """θ = exp(m + 2ξ)."""
        return np.exp(PRIOR * xi + (PRIOR**2 if self.density == "theta" else 0.0))

    def potential(self, xi: Theta) -> tuple[float, Theta]:
        """Φ = -`log_likelihood` and ∇Φ."""
        theta = self.theta(xi)
        flow = at(theta)
        r = (flow.u - DATA.reshape(SENSORS, SENSORS)) / NOISE**2
        return 0.5 * NOISE**2 * float(np.sum(r**2)), PRIOR * theta * flow.vjp(r).T.ravel()

    def curvature(self, xi: Theta) -> Float[np.ndarray, "64 64"]:
        """The Hessian of Gauss and Newton of Φ."""
        theta = self.theta(xi)
        flow, units = at(theta), np.eye(DATA.size).reshape(-1, SENSORS, SENSORS)
        rows = np.stack([theta * flow.vjp(unit).T.ravel() for unit in units]) * PRIOR / NOISE
        return rows.T @ rows


def chain_of(number: int, density: Density, steps: int, burn_in: int, folder: Path) -> Path:
    """The file of a chain from a draw of the prior: log θ of every fourth step, and its cost."""
    file = folder / f"{density}-{number}-{steps}-{burn_in}.npz"
    if not file.exists():
        begun, posterior = time.process_time(), Posterior(density)
        found = Hamiltonian(posterior.potential, posterior.curvature).run(
            NormalStream(CHAIN_SEED).normals_of([number], BLOCKS**2)[0],
            steps, burn_in, CHAIN_SEED, number, every=4,
        )  # fmt: skip
        cost = [time.process_time() - begun, found.work.fine, found.accepted, found.beta]
        partly = file.with_suffix(".part.npz")
        np.savez(partly, values=np.log(posterior.theta(found.values)), cost=cost)
        partly.rename(file)
    return file


def membrane(
    density: Density, chains: int, steps: int, burn_in: int, workers: int, folder: Path
) -> None:  # fmt: skip
    """Run chains and print their summary. Finished chains are kept in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run = partial(chain_of, density=density, steps=steps, burn_in=burn_in, folder=folder)
    with ProcessPoolExecutor(workers) as pool:
        files = list(pool.map(run, range(chains)))
    kept = [np.load(file) for file in files]
    settings = {"density": density, "chains": chains, "steps": steps, "burn-in": burn_in}
    print(json.dumps(settings | summary(
        np.stack([one["values"] for one in kept]), np.stack([one["cost"] for one in kept])
    )))  # fmt: skip


def summary(
    values: Float[np.ndarray, "chains draws 64"], cost: Float[np.ndarray, "chains 4"]
) -> dict[str, Any]:
    """Posterior means with standard errors, and figures of convergence and cost."""
    seconds, gradients, accepted, epsilon = cost.T
    numbers = {"log theta": np.moveaxis(values, -1, 0), "theta": np.moveaxis(np.exp(values), -1, 0)}
    sizes = [bulk_ess(draws) for draws in numbers["log theta"]]
    of_means = {
        f"{what} of {name}": [float(f"{of(draws):.4g}") for draws in each]
        for name, each in numbers.items()
        for what, of in (("mean", np.mean), ("error", mean_error), ("deviation", np.std))
    }
    return {
        "R-hat, largest": round(max(map(split_r_hat, numbers["log theta"])), 4),
        "ESS, smallest": round(min(sizes)),
        "ESS, median": round(float(np.median(sizes))),
        "accepted": round(float(accepted.mean()), 3),
        "step": epsilon.round(3).tolist(),
        "gradients": int(gradients.sum()),
        "processor minutes": round(float(seconds.sum()) / 60, 1),
    } | of_means
