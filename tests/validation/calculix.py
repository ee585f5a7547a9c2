"""Forging of a block by CalculiX: static, with surface-to-surface contact.

A static block cannot drift: dies are symmetric, and the middle of the bottom is held.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
from jaxtyping import Float

from pdegen.equations.plasticity.problem import Spline
from pdegen.equations.plasticity.solver import Forging

_PENALTY = 1e5  # stiffness of the contact, MPa/mm
_HARDENING = 1e-3  # rise of the yield stress at a strain of 1, relative; tangents stay regular
_DIE = 120  # elements along the die


def forged(
    forging: Forging, spline: Spline, die: Float[np.ndarray, "pieces 4"], folder: Path
) -> tuple[Float[np.ndarray, "2 nx ny"], float]:
    """Displacement of the nodes when the die has come down, and the force on the floor.

    Elements are quadratic with reduced integration; one replaces two by two elements of the block.
    Nodes that no element has are NaN.

    Raises:
        subprocess.CalledProcessError: If CalculiX does not converge.
    """
    (folder / "block.inp").write_text(_deck(forging, spline, die))
    subprocess.run(["ccx", "block"], cwd=folder, check=True, capture_output=True, timeout=900)
    displacement = np.full((forging.block.nodes[0].size, 2), np.nan)
    rows = _last_table(folder / "block.dat", "displacements")
    displacement[rows[:, 0].astype(int) - 1] = rows[:, 1:3]
    force = _last_table(folder / "block.dat", "forces")[:, 2].sum()
    return displacement.T.reshape(forging.block.nodes.shape), float(force)


def _deck(forging: Forging, spline: Spline, die: np.ndarray) -> str:
    block, material = forging.block, forging.material
    number = 1 + np.arange(block.nodes[0].size).reshape(block.nodes[0].shape)
    x = np.linspace(-0.62, 0.62, _DIE + 1) * block.length
    low = block.height + spline.values(die[None], x)[0]
    above = number.size + 1 + np.arange(2 * (_DIE + 1)).reshape(2, -1)
    nodes = np.concatenate([
        block.nodes.reshape(2, -1).T, np.stack([x, low], 1), np.stack([x, low + 2], 1)
    ])  # fmt: skip
    corners = [number[i : i - 2 or None : 2, j : j - 2 or None : 2]
               for i, j in ((0, 0), (2, 0), (2, 2), (0, 2))]  # fmt: skip
    middles = [number[1::2, 0:-2:2], number[2::2, 1::2], number[1::2, 2::2], number[0:-2:2, 1::2]]
    quads = np.stack([*corners, *middles], -1)
    rigid = np.stack([above[0, :-1], above[0, 1:], above[1, 1:], above[1, :-1]], -1)
    element = 1 + np.arange(quads[..., 0].size).reshape(quads.shape[:2])
    used = np.unique(quads)
    lines = ["*NODE, NSET=ALL"]
    lines += [f"{k}, {a:.12g}, {b:.12g}, 0" for k, (a, b) in enumerate(nodes, 1)
              if k in used or k > number.size]  # fmt: skip
    for name, kind, start, elements in (
        ("BLOCK", "CPS8R", 1, quads.reshape(-1, 8)), ("DIE", "CPS4", element.size + 1, rigid)
    ):  # fmt: skip
        lines.append(f"*ELEMENT, TYPE={kind}, ELSET={name}")
        lines += [f"{k}, " + ", ".join(map(str, e)) for k, e in enumerate(elements, start)]
    sets = {"NBLOCK": used, "NDIE": above.ravel(), "FLOOR": number[:, 0]}
    for name, members in sets.items():
        lines += [f"*NSET, NSET={name}", *(f"{k}," for k in members)]
    lines += ["*SURFACE, NAME=SLAVE, TYPE=ELEMENT"]
    for side, face in ((element[0], "S4"), (element[:, -1], "S3"), (element[-1], "S2")):
        lines += [f"{k}, {face}" for k in side]
    limit = material.limit
    lines += [
        "*SURFACE, NAME=MASTER, TYPE=ELEMENT", "DIE, S1",
        "*MATERIAL, NAME=STEEL", "*ELASTIC", f"{material.young}, {material.poisson}",
        "*PLASTIC", f"{limit}, 0.", f"{limit * (1 + 10 * _HARDENING)}, 10.",
        "*MATERIAL, NAME=HARD", "*ELASTIC", f"{material.young}, {material.poisson}",
        "*SOLID SECTION, ELSET=BLOCK, MATERIAL=STEEL", "1.",
        "*SOLID SECTION, ELSET=DIE, MATERIAL=HARD", "1.",
        "*SURFACE INTERACTION, NAME=SLIDING",
        "*SURFACE BEHAVIOR, PRESSURE-OVERCLOSURE=LINEAR", f"{_PENALTY}, 0.1",
        "*CONTACT PAIR, INTERACTION=SLIDING, TYPE=SURFACE TO SURFACE", "SLAVE, MASTER",
        "*BOUNDARY", "FLOOR, 2, 2", f"{number[block.across // 2, 0]}, 1, 1", "NDIE, 1, 1",
        "*STEP, NLGEOM, INC=100000", "*STATIC", "0.01, 1., 1e-7, 0.04",
        "*BOUNDARY", f"NDIE, 2, 2, {-forging.drop}",
        "*NODE PRINT, NSET=NBLOCK, FREQUENCY=100000", "U",
        "*NODE PRINT, NSET=FLOOR, FREQUENCY=100000", "RF",
        "*END STEP", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _last_table(path: Path, name: str) -> Float[np.ndarray, "rows 3"]:
    """The last table of this name in a file of results, in the order of the nodes."""
    rows = list[list[float]]()
    reading = False
    for line in path.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            rows, reading = [], True
        elif words and not words[0].isdigit():
            reading = False
        elif words and reading:
            rows.append([float(word) for word in words])
    return np.array(sorted(rows))
