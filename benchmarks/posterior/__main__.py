"""Posterior samples by Markov chains: of two phases, and of the membrane with 64 values.

`chains` compares Metropolis-Hastings with delayed acceptance on a few samples. `calibrated` runs a
chain for each of many samples and measures the coverage of its intervals. `membrane` computes the
posterior means of the problem of Aristoff and Bangerth.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from benchmarks.posterior.calibrated import calibrated
from benchmarks.posterior.chains import chains
from benchmarks.posterior.membrane import Density, membrane


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.posterior", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    chains_command, calibrated_command, membrane_command = (
        commands.add_parser(name) for name in ("chains", "calibrated", "membrane")
    )
    for command in (chains_command, calibrated_command):
        command.add_argument("--noise", type=float, default=0.2)
    chains_command.add_argument("--first", type=int, default=300)
    chains_command.add_argument("--samples", type=int, default=5)
    chains_command.add_argument("--chains", type=int, default=4)
    chains_command.add_argument("--steps", type=int, default=100_000)
    chains_command.add_argument("--burn-in", type=int, default=10_000)
    calibrated_command.add_argument("--samples", type=int, default=500)
    calibrated_command.add_argument("--cells", type=int, default=11)
    calibrated_command.add_argument("--steps", type=int, default=8_000)
    calibrated_command.add_argument("--burn-in", type=int, default=2_000)
    calibrated_command.add_argument("--own-data", action="store_true")
    calibrated_command.add_argument("--lines", type=Path, default=Path("calibrated.jsonl"))
    calibrated_command.add_argument("--picture", type=Path)
    membrane_command.add_argument("--density", choices=get_args(Density), default="theta")
    membrane_command.add_argument("--chains", type=int, default=4)
    membrane_command.add_argument("--steps", type=int, default=25_000)
    membrane_command.add_argument("--burn-in", type=int, default=3_000)
    membrane_command.add_argument("--workers", type=int, default=1)
    membrane_command.add_argument("--folder", type=Path, default=Path("membrane-chains"))
    o = parser.parse_args()
    if o.what == "chains":
        chains(o.noise, o.first, o.samples, o.chains, o.steps, o.burn_in)
    elif o.what == "membrane":
        membrane(o.density, o.chains, o.steps, o.burn_in, o.workers, o.folder)
    else:
        settings = {
            "noise": o.noise, "cells": o.cells, "steps": o.steps, "burn-in": o.burn_in,
            "own data": o.own_data,
        }  # fmt: skip
        try:
            calibrated(settings, o.samples, o.lines, o.picture)
        except ValueError as error:
            parser.error(str(error))


if __name__ == "__main__":
    main()
