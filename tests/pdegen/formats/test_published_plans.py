"""Every description of published files, as a whole: what is known of a file with these arrays."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.formats.plan import ImportOptions, Plan
from pdegen.formats.recognised import _DATASETS, recognised_plan
from pdegen.formats.sandbox import in_groups
from tests.pdegen.formats.test_descriptions import contents

EXPECTED = json.loads(Path(__file__).with_name("published_plans.json").read_text("utf-8"))
TINY = ImportOptions(splits={"train": 2, "test": 1})


def flow(frames: int) -> dict[str, np.ndarray]:
    return {"a": np.zeros((3, 4, 6)), "u": np.zeros((3, 4, 6, frames))}


def line(more: int) -> dict[str, np.ndarray]:
    """The list of times has `more` entries than there are frames."""
    times = np.array([0.25, 0.75, 1.5, 2.5, 4.0, 7.0])[: 5 + more]
    return {
        "tensor": np.zeros((3, 5, 7), "f4"), "x-coordinate": 2 * CellGrid(7).x,
        "t-coordinate": times,
    }  # fmt: skip


def square() -> dict[str, np.ndarray]:
    arrays = {"nu": np.zeros((3, 5, 7), "f4"), "tensor": np.zeros((3, 1, 5, 7), "f4")}
    return arrays | {"x-coordinate": CellGrid(5).x, "y-coordinate": 3 * CellGrid(7).x}


def gas(axes: str) -> dict[str, np.ndarray]:
    """One array for each variable, with one time more than there are frames."""
    shape = {"x": 4, "y": 5, "z": 6}
    names = (*(f"V{axis}" for axis in axes), "density", "pressure")
    values = np.zeros((3, 3, *(shape[axis] for axis in axes)), "f4")
    lines = {f"{axis}-coordinate": 2 * CellGrid(shape[axis]).x for axis in axes}
    return dict.fromkeys(names, values) | lines | {"t-coordinate": np.array([0.0, 0.5, 2, 3])}


def samples(axes: str, channels: int) -> dict[str, np.ndarray]:
    """A group for each of three samples."""
    shape = {"x": 4, "y": 5}
    values = np.zeros((3, *(shape[axis] for axis in axes), channels), "f4")
    one = {"data": values, "grid/t": np.array([0.0, 0.5, 2])}
    one |= {f"grid/{axis}": 2 * CellGrid(shape[axis]).x - 1 for axis in axes}
    return {f"{k:04d}/{name}": array for k in range(3) for name, array in one.items()}


def nodes(n: int) -> dict[str, np.ndarray]:
    return {"x": np.zeros((3, n, n), bool), "y": np.zeros((3, n, n), "f4")}


def pair(stem: str, *shape: int) -> dict[str, np.ndarray]:
    return {f"{stem}_{end}": np.zeros(shape) for end in ("inputs", "outputs")}


def well(**fields: np.ndarray) -> dict[str, np.ndarray]:
    sizes = {"time": np.array([0.5, 1.0, 2.0, 4.0]), "x": np.arange(5) / 4, "y": np.arange(7.0)}
    return {f"dimensions/{axis}": values for axis, values in sizes.items()} | {
        name.replace("__", "/"): values for name, values in fields.items()
    }


CELL, NACA, PIPE = "Random_UnitCell_{}_10", "NACA_Cylinder_{}", "Pipe_{}"
POINTS = {CELL.format("sigma"): np.zeros((6, 3)), CELL.format("XY"): np.zeros((6, 2, 3))}
FILES = {
    "burgers_data_R10.mat": {name: np.zeros((3, 8192), "u1") for name in "au"},
    "piececonst_r421_N1024_smooth1.mat": {n: np.zeros((3, 4, 6), "f4") for n in ("coeff", "sol")},
    "NavierStokes_V1e-3_N5000_T50.mat": flow(20) | {"t": np.arange(2.0, 22)[None]},
    "ns_V1e-4.mat": flow(3),
    "ns_V100000.mat": flow(3),
    "1D_Burgers_Sols_Nu0.01.hdf5": line(1),
    "1D_Advection_Sols_beta0.4.hdf5": line(0),
    "ReacDiff_Nu0.5_Rho2.0.hdf5": line(1),
    "1D_Sorption.hdf5": line(0),
    "2D_DarcyFlow_beta10.0_Train.hdf5": square(),
    "2D_DarcyFlow.hdf5": square(),
    "1D_CFD_Rand_Eta0.1_Zeta1.e-8_periodic_Train.hdf5": gas("x"),
    "1D_CFD_Shock_Eta0.01_Zeta0.01_trans_Train.hdf5": gas("x"),
    "2D_CFD_Rand_M0.1_Eta0.01_Zeta0.01_periodic_128_Train.hdf5": gas("xy"),
    "3D_CFD_Turb_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5": gas("xyz"),
    "2D_diff-react_NA_NA.h5": samples("xy", 2),
    "2D_rdb_NA_NA.h5": samples("xy", 1),
    "1D_diff-sorp_NA_NA.h5": samples("x", 1),
    "burgers_lowres.pt": {
        "input": np.zeros((3, 5)), "output": np.zeros((3, 17, 5)), "visc": np.array([0.25, 0.5]),
    },
    "darcy_train_16.pt": nodes(16),
    "darcy_train_32.pt": nodes(32),
    "Advection_inputs.npy": pair("Advection", 5, 3),
    "Helmholtz_inputs.npy": pair("Helmholtz", 5, 7, 3),
    "NavierStokes_inputs.npy": pair("NavierStokes", 5, 7, 3),
    "Random_UnitCell": POINTS | {
        CELL.format("theta"): np.zeros((3, 10)), CELL.format("rr"): np.zeros((8, 3)),
    },
    "Random_UnitCell of points": POINTS,
    "Pipe": {
        PIPE.format("Q"): np.zeros((3, 3, 4, 5)), PIPE.format("X"): np.zeros((3, 4, 5)),
        PIPE.format("Y"): np.zeros((3, 4, 5)),
    },
    "plas_N987_T20.mat": {
        "input": np.zeros((3, 101)), "output": np.zeros((3, 101, 31, 20, 4), "u1"),
    },
    "NACA_Cylinder": {
        NACA.format("Q"): np.zeros((3, 5, 4, 6)), NACA.format("X"): np.zeros((3, 4, 6)),
        NACA.format("Y"): np.zeros((3, 4, 6)),
    },
    "density.hdf5": well(t0_fields__density=np.zeros((3, 4, 5, 7))),
    "velocity.hdf5": well(t1_fields__velocity=np.zeros((3, 4, 5, 7, 2))),
}  # fmt: skip
OF_THE_WELL = {
    "@dataset_name": "toy", "@Rayleigh": 7.0, "@n_spatial_dims": 2.0, "@n_trajectories": 3.0,
    "boundary_conditions/x@bc_type": "periodic", "boundary_conditions/y@bc_type": "PERIODIC",
    "boundary_conditions/y@more": 5.0, "t0_fields@rank": 6.0,
}  # fmt: skip


def numbers(values: np.ndarray) -> list[float]:
    """Number, first three, last and sum of values."""
    flat = np.asarray(values, float).reshape(-1)
    return [len(flat), *flat[:3].tolist(), float(flat[-1]), float(flat.sum())]


def described(plan: Plan) -> dict[str, object]:
    """All that a plan says, as JSON."""
    said: dict[str, object] = {
        key: getattr(plan, key) for key in ("name", "title", "equation", "source", "warning")
    }
    for field in plan.fields:
        view, variable = field.views[0], field.variable
        said[f"field {field.name}"] = [
            view.array.name, view.axes, view.frames, view.selection, variable.dims, variable.shape,
            variable.dtype, variable.attributes,
        ]  # fmt: skip
    for one in plan.coordinates:
        said[f"coordinate {one.name}"] = [one.dims, numbers(one.values), one.attributes]
    said |= {"domain": plan.domain and plan.domain.attributes(), "splits": plan.splits}
    return said | {"physics": plan.physics.attributes(), "attributes": plan.attributes}


def described_file(folder: Path, name: str) -> dict[str, object]:
    attributes = OF_THE_WELL if "dimensions/time" in FILES[name] else {}
    file = replace(contents(folder, FILES[name], **attributes), path=folder / name)
    plan = recognised_plan([in_groups(file)], TINY)
    assert plan is not None
    return json.loads(json.dumps(described(plan)))


@pytest.mark.parametrize("name", FILES)
def test_a_published_file_has_all_that_is_known_of_it(tmp_path, name):
    found, expected = described_file(tmp_path, name), EXPECTED[name]
    assert [*found] == [*expected]
    for part, value in found.items():
        assert value == expected[part] or _near(value, expected[part]), part


def _near(found: object, expected: object) -> bool:
    """The same but for the rounding of numbers."""
    if isinstance(found, float):
        return found == pytest.approx(expected, rel=1e-12)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_near, found, expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return [*found] == [*expected] and all(map(_near, found.values(), expected.values()))
    return found == expected


PUBLISHED_SPLITS = [
    ("burgers-r10-published", [2048], {"train": 1024, "validation": 100, "test": 100}),
    ("darcy-421-published-file", [1024], {"train": 1024}),
    ("darcy-421-published-file", [600, 700], {"train": 1024, "validation": 100, "test": 100}),
    ("navier-stokes-published", [600, 590], {"train": 1000, "validation": 0, "test": 200}),
    ("navier-stokes-published", [700, 650], {"train": 1000, "validation": 150, "test": 200}),
    ("navier-stokes-published", [5000], {"train": 1000, "validation": 200, "test": 200}),
    ("pdebench-1d", [25, 14], {"test": (0, 3), "train": (3, 39)}),
    ("pdebench-1d", [9], {"train": (0, 9)}),
    ("pdebench-darcy", [10, 1], {"test": (0, 1), "train": (1, 11)}),
    *((name, [12, 8], {"test": (0, 2), "train": (2, 20)}) for name in (
        "pdebench-1d-cfd", "pdebench-2d-cfd", "pdebench-3d-cfd", "pdebench-1d-groups",
        "pdebench-2d-groups",
    )),
    ("neuralop-burgers", [1200], {"train": 800, "test": 400}),
    ("neuralop-darcy", [7], {"train": 7}),
    ("neuralop-darcy", [7, 4, 3], {"train": 11, "test": 3}),
    ("cost-accuracy-advection", [5, 6], {"train": 5, "test": 6}),
    ("cost-accuracy-helmholtz", [8], {"train": 4, "test": 4}),
    ("cost-accuracy-navierstokes", [7], {"train": 3, "test": 4}),
    ("elasticity-published", [1190], {"train": 1000, "validation": 0, "test": 200}),
    ("elasticity-published", [1000, 350], {"train": 1000, "validation": 150, "test": 200}),
    ("elasticity-published", [2000], {"train": 1000, "validation": 200, "test": 200}),
    ("pipe-published", [1200], {"train": (0, 1000), "test": (1000, 1200)}),
    ("pipe-published", [700, 601],
     {"train": (0, 1000), "test": (1000, 1200), "validation": (1200, 1301)}),
    ("pipe-published", [2310],
     {"train": (0, 1000), "test": (1000, 1200), "validation": (1200, 1400)}),
    ("plasticity-published", [900, 87],
     {"train": (0, 827), "validation": (827, 907), "test": (907, 987)}),
    ("airfoil-published", [1200, 300],
     {"train": (0, 900), "validation": (900, 1000), "test": (1000, 1200)}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "counts", "expected"), PUBLISHED_SPLITS)
def test_the_splits_of_the_literature_follow_from_the_samples_of_all_files(name, counts, expected):
    (dataset,) = [one for one in _DATASETS if one.name == name]
    assert dataset.splits(counts) == expected


def test_every_published_set_has_its_plan_and_splits_here():
    names = {dataset.name for dataset in _DATASETS}
    assert {plan["name"] for plan in EXPECTED.values()} == {*names, "the-well"}
    assert {name for name, *_ in PUBLISHED_SPLITS} == names
