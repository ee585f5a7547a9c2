"""A store with two inputs, of which each is needed."""

from pathlib import Path

import numpy as np

from pdegen.domains import PeriodicGrid
from pdegen.generation.generate import provenance
from pdegen.store.layout import Coordinate, Layout, Variable
from pdegen.store.writing import lay_out, seal
from tests.stores import write_shard

ROLES = {"u0": "input", "v": "input", "u": "target", "p": "target"}


def two_input_store(folder: Path, samples: int = 48, points: int = 64) -> str:
    """u = u0 + 2 v on a circle, and a second target p = u0; two thirds are for training."""
    u0, v = np.random.default_rng(0).standard_normal((2, samples, points)).astype(np.float32)
    values = {"u0": u0, "v": v, "u": u0 + 2 * v, "p": u0}
    layout = Layout(
        samples=samples,
        shard=samples,
        variables=tuple(
            Variable(name, ("x",), (points,), "float32", {"role": role})
            for name, role in ROLES.items()
        ),
        coordinates=(Coordinate("x", ("x",), PeriodicGrid(points).x, {"grid": "periodic"}),),
        attributes={
            "title": "two inputs",
            "equation": "u = u0 + 2 v",
            "provenance": provenance(),
            "recipe": {"name": "two-inputs", "problem": {}},
            "fingerprint": "0" * 64,
            "splits": {
                "train": [0, samples * 2 // 3],
                "validation": [samples * 2 // 3, samples * 5 // 6],
                "test": [samples * 5 // 6, samples],
            },
        },
    )
    store = lay_out(str(folder), layout)
    write_shard(store, 0, values, {})
    seal(store)
    return store.url
