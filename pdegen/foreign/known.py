"""The published files that are known.

A file is recognised by its keys and shapes; where those of several agree, by its name. Facts come
from the papers and generators named at each. Where those and the file disagree, the file counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pdegen.foreign import cost_accuracy, fno, geo_fno, neuralop, pdebench, well
from pdegen.foreign.arrays import Contents
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.plan import Plan
from pdegen.foreign.published import Published, plan

Recogniser = Callable[[Contents, Declaration], Published | None]


def known(files: Sequence[Contents], declaration: Declaration) -> Plan | None:
    """The plan of files that are known; None where they are not.

    Raises:
        ForeignError: If they are known and do not fit together, or are not as published.
    """
    by_hand = Declaration(grid=declaration.grid, splits=declaration.splits) != declaration
    for recogniser in (well.trajectories,) if by_hand else _KNOWN:
        found = [
            one for one in (recogniser(file, declaration) for file in files) if one is not None
        ]
        if found and len(found) == len(files):
            return plan(found, files, declaration)
    return None


_KNOWN: tuple[Recogniser, ...] = (
    fno.burgers,
    fno.darcy,
    fno.navier_stokes,
    pdebench.trajectories,
    pdebench.darcy,
    well.trajectories,
    neuralop.burgers,
    neuralop.darcy,
    cost_accuracy.pairs,
    geo_fno.elasticity,
    geo_fno.pipe,
    geo_fno.plasticity,
    geo_fno.airfoil,
)
