"""The errors of plasticity beside blocks of twice as many points along each side:
`python -m tests.validation.plasticity --resolution 101 --samples 20`.

For each sample: the estimates of the store, with drift and without, over the true differences.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from pdegen.equations.plasticity.problem import Plasticity
from pdegen.equations.plasticity.solver import Frames, centred
from pdegen.recipe import load_recipe


def ratios(resolution: int, samples: range) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The number of a sample, its two true errors, and its two estimates."""
    coarse, fine = (_problem(n) for n in (resolution, 2 * resolution - 1))
    for sample in samples:
        found, reference = _frames(coarse, sample), _frames(fine, sample)
        forging = coarse.forging
        less = forging.coarser()
        other = less(coarse.dies(0, range(sample, sample + 1))[0])
        true = [forging.difference(found.u, reference.u),
                forging.difference(centred(found), centred(reference))]  # fmt: skip
        estimate = forging.estimates(found, other)
        yield sample, np.array(true), np.array(estimate)


def _problem(resolution: int) -> Plasticity:
    problem = load_recipe("plasticity").with_overrides({"resolution": resolution}).problem
    assert isinstance(problem, Plasticity)
    return problem


def _frames(problem: Plasticity, sample: int) -> Frames:
    return problem.forging(problem.dies(0, range(sample, sample + 1))[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resolution", type=int, default=101)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    found = list[np.ndarray]()
    for sample, true, estimate in ratios(
        asked.resolution, range(asked.first, asked.first + asked.samples)
    ):
        found.append(estimate / true)
        print(f"sample {sample}: error {true[0]:.4f}, estimate {estimate[0]:.4f}; "
              f"without drift {true[1]:.4f}, {estimate[1]:.4f}", flush=True)  # fmt: skip
    for name, ratio in zip(("with drift", "without"), np.stack(found, axis=1), strict=True):
        near = ((ratio >= 0.5) & (ratio <= 2)).sum()
        print(f"{name}: estimate over error, median {np.median(ratio):.2f}; within a factor of 2 "
              f"in {near} of {len(ratio)}")  # fmt: skip


if __name__ == "__main__":
    main()
