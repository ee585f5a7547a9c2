"""Posterior samples of two phases by one model and by two, and intervals that cover.

`chains` compares Metropolis and Hastings with delayed acceptance on some samples; `calibrated` runs
a chain for each of many samples and counts how often its intervals hold the truth; `coverage` does
so for conformal bands around the largest posterior density.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.posterior.bands import covered
from benchmarks.posterior.calibrated import calibrated
from benchmarks.posterior.chains import chains


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.posterior", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    one, two, three = (commands.add_parser(name) for name in ("chains", "calibrated", "coverage"))
    for command in (one, two):
        command.add_argument("--noise", type=float, default=0.2)
    one.add_argument("--first", type=int, default=300)
    one.add_argument("--samples", type=int, default=5)
    one.add_argument("--chains", type=int, default=4)
    one.add_argument("--steps", type=int, default=100_000)
    one.add_argument("--burn-in", type=int, default=10_000)
    two.add_argument("--samples", type=int, default=500)
    two.add_argument("--cells", type=int, default=11)
    two.add_argument("--steps", type=int, default=8_000)
    two.add_argument("--burn-in", type=int, default=2_000)
    two.add_argument("--own-data", action="store_true")
    two.add_argument("--lines", type=Path, default=Path("calibrated.jsonl"))
    two.add_argument("--picture", type=Path)
    three.add_argument("--noise", type=float, default=0.05)
    three.add_argument("--calibration", type=int, default=1000)
    three.add_argument("--samples", type=int, default=2000)
    three.add_argument("--picture", type=Path)
    o = parser.parse_args()
    if o.what == "chains":
        chains(o.noise, o.first, o.samples, o.chains, o.steps, o.burn_in)
    elif o.what == "calibrated":
        settings = {
            "noise": o.noise, "cells": o.cells, "steps": o.steps, "burn-in": o.burn_in,
            "own data": o.own_data,
        }  # fmt: skip
        try:
            calibrated(settings, o.samples, o.lines, o.picture)
        except ValueError as error:
            parser.error(str(error))
    else:
        covered(o.noise, o.calibration, o.samples, o.picture)


if __name__ == "__main__":
    main()
