"""Small sealed stores and pairs read from them."""

import numpy as np
import pytest

from pdegen.domains import CellGrid


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    from pdegen.generation.generate import generate
    from pdegen.recipe import load_recipe

    recipe = load_recipe("burgers-quick").with_overrides(
        {"samples": 40, "shard": 16, "problem.resolution": 64, "problem.initial.modes": 127,
         "problem.solver.resolution": 256}
    )  # fmt: skip
    return generate(recipe, str(tmp_path_factory.mktemp("store") / "small.zarr"), workers=1).url


@pytest.fixture(scope="session")
def train_pairs(store):
    from operators.data import read_pairs

    return read_pairs(store, "train", 32)


@pytest.fixture(scope="session")
def test_pairs(store):
    from operators.data import read_pairs

    return read_pairs(store, "test", 32)


@pytest.fixture(scope="session")
def darcy_store(tmp_path_factory):
    """Solutions on 13 x 13 cells: 10 samples for training, one for validation, one for tests."""
    from pdegen.generation.generate import generate
    from pdegen.recipe import load_recipe

    recipe = load_recipe("darcy-quick").with_overrides(
        {"samples": 12, "resolution": 13, "modes": 16, "refinement": 1, "shard": 5}
    )
    return generate(recipe, str(tmp_path_factory.mktemp("darcy") / "small.zarr"), workers=1).url


@pytest.fixture(scope="session")
def laid_out(tmp_path_factory):
    """Seals given values as a store on a square: the first half of the samples is for training.

    Where `a` is NaN, a sample was skipped.
    """
    from pdegen.store.layout import Coordinate, Variable
    from tests.stores import sealed_store

    def make(kind, axes, levels=None, **values):
        samples = len(values["a"])

        def variable(name, v):
            space = ("x", "y")[: v.ndim - 1] if v.ndim < 4 else ("level", "x", "y")
            return Variable(name, space, v.shape[1:], v.dtype.name)

        coordinates = [
            Coordinate(name, (name,), axis, {"grid": kind})
            for name, axis in zip(("x", "y"), axes, strict=True)
        ]
        if levels is not None:
            coordinates.append(Coordinate("level", ("level",), np.array(levels)))
        lost = [i for i in range(samples) if np.isnan(values["a"][i]).any()]
        return sealed_store(
            tmp_path_factory.mktemp("plane") / "store.zarr", values,
            [variable(name, v) for name, v in values.items()], coordinates,
            {"train": [0, samples // 2], "test": [samples // 2, samples]}, shard=5, lost=lost,
            recipe={"name": "by-hand", "problem": {"equation": "darcy"}},
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def plane_values():
    """Coefficients 3 and 12, and smooth u that do not vanish half a cell from the walls."""
    rng, x = np.random.default_rng(0), CellGrid(13).x
    a = rng.choice([3.0, 12.0], size=(24, 13, 13)).astype(np.float32)
    bump = np.sin(np.pi * x)[:, None] * np.sin(np.pi * x) * (1 + 0.3 * x[:, None])
    u = 0.01 * bump * (1 + 0.2 * rng.standard_normal((24, 1, 1))) + 1e-4 * rng.standard_normal(
        (24, 13, 13)
    )
    return {"a": a, "u": u.astype(np.float32)}


@pytest.fixture(scope="session")
def plane_store(laid_out, plane_values):
    """13 x 13 cells, which have subsamples of 7, 5, 4, 3 and 2 points."""
    residual = np.zeros(24)
    return laid_out("cell", [CellGrid(13).x] * 2, **plane_values, residual=residual)
