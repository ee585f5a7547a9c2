"""Stated errors of flows through pipes beside true ones: `python -m tests.validation.pipe`.

For random samples of the recipe pipe: the stated errors of u, v and p, in relative L² over the
points, beside the distance to a solution on a mesh twice as fine along the pipe and
across.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from pdegen.equations.pipe.problem import BentPipe
from pdegen.equations.pipe.solver import Pipe
from pdegen.recipe import load_recipe


def errors(
    resolution: int, samples: list[int], steps: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields for each sample the stated and the true errors of u, v and p.

    Steps of Newton's method on the finer mesh begin at the flow on the coarser one; each squares
    its distance to the solution.
    """
    problem = load_recipe("pipe").with_overrides({"problem.resolution": resolution}).problem
    assert isinstance(problem, BentPipe)
    n = 2 * problem.elements
    weight = np.ones((resolution, resolution))
    weight[[0, -1]] /= 2
    weight[:, [0, -1]] /= 2
    for i in samples:
        label = {key: value[0] for key, value in problem.compute(0, range(i, i + 1)).items()}
        line = problem.centre.build(label["knots"][None])
        start = Pipe(n // 2, n // 2, problem.length, problem.viscosity).solve(line(n + 1)).flow
        pipe = Pipe(n, n, problem.length, problem.viscosity)
        flow = start.refined()
        for _ in range(steps):
            flow = pipe.improved(line(2 * n + 1), flow)
        finer = [*flow.velocity[0], flow.at_nodes[0]]
        true = []
        for name, field in zip("uvp", finer, strict=True):
            difference, reference = label[name] - field[::2, ::2], field[::2, ::2]
            true.append(np.sqrt(np.sum(weight * difference**2) / np.sum(weight * reference**2)))
        stated = [label[name] for name in ("error", "error_v", "error_p")]
        yield np.array(stated), np.array(true)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20, help="1 to 20")
    parser.add_argument("--resolution", type=int, default=129)
    options = parser.parse_args()
    chosen = np.random.default_rng(0).choice(1400, 20, replace=False)[: options.samples]
    rows = []
    for i, (stated, true) in zip(chosen, errors(options.resolution, chosen.tolist()), strict=True):
        rows.append((stated, true))
        print(f"sample {i:4}: stated {stated}, true {true}, ratio {stated / true}", flush=True)
    stated, true = np.array(rows).swapaxes(0, 1)
    ratio = stated / true
    for k, name in enumerate("uvp"):
        print(
            f"{name}: error {true[:, k].min():.2g} to {true[:, k].max():.2g}, mean "
            f"{true[:, k].mean():.2g}; stated over true {ratio[:, k].min():.3f} to "
            f"{ratio[:, k].max():.3f}; within a factor of 2: "
            f"{np.mean((ratio[:, k] > 0.5) & (ratio[:, k] < 2)):.0%}"
        )


if __name__ == "__main__":
    main()
