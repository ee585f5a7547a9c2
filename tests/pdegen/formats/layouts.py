"""Files with the layouts of public ones, their sizes cut: `write(folder)` makes them all.

Names, axes and types are those of the public files; the values are smooth fields.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from scipy.io import netcdf_file, savemat

Values = np.ndarray


def waves(*shape: int, seed: int = 0) -> Values:
    """Sums of a few waves along the last two axes, other ones for each index of the others."""
    draw = np.random.default_rng(seed)
    *outer, n = shape
    x = 2 * np.pi * np.arange(n) / n
    phases = draw.uniform(0, 2 * np.pi, (3, *outer, 1))
    heights = draw.standard_normal((3, *outer, 1))
    waves = [heights[k] * np.sin((k + 1) * x + phases[k]) for k in range(3)]
    return np.sum(waves, axis=0)


def moving(samples: int, times: int, *points: int, seed: int = 0) -> Values:
    """Waves that travel along the last axis and decay, shape (samples, times, *points)."""
    u = waves(samples, *points, seed=seed)
    return np.stack([np.roll(u, k, -1) * np.exp(-k / times) for k in range(times)], axis=1)


def diffusion_reaction(path: Path) -> None:
    """PDEBench, 2D_diff-react_NA_NA.h5: a group for each sample, (time, x, y, channel)."""
    with h5py.File(path, "w") as file:
        for k, sample in enumerate(moving(24, 6, 16, 16)):
            group = file.create_group(f"{k:04d}")
            both = np.stack([sample, sample**2], axis=-1)
            group["data"] = both.astype("f4")
            for axis in "xy":
                group[f"grid/{axis}"] = np.linspace(-1 + 1 / 16, 1 - 1 / 16, 16, dtype="f4")
            group["grid/t"] = np.linspace(0, 5, 6, dtype="f4")


def dam_break(path: Path) -> None:
    """PDEBench, 2D_rdb_NA_NA.h5: a group for each sample, (time, x, y, 1)."""
    with h5py.File(path, "w") as file:
        for k, sample in enumerate(moving(24, 6, 16, 16)):
            group = file.create_group(f"{k:04d}")
            group["data"] = sample[..., None].astype("f4")
            for axis in "xy":
                group[f"grid/{axis}"] = np.linspace(-2.5 + 5 / 32, 2.5 - 5 / 32, 16, dtype="f4")
            group["grid/t"] = np.linspace(0, 1, 6, dtype="f4")


def compressible(path: Path) -> None:
    """PDEBench, 1D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5: one array for each variable."""
    with h5py.File(path, "w") as file:
        for seed, name in enumerate(("Vx", "density", "pressure")):
            file[name] = (moving(24, 6, 32, seed=seed) + (3 if seed else 0)).astype("f4")
        file["x-coordinate"] = np.linspace(1 / 64, 1 - 1 / 64, 32, dtype="f4")
        file["t-coordinate"] = np.linspace(0, 1, 7, dtype="f4")


def the_well(path: Path) -> None:
    """The Well: fields of several ranks, dimensions, boundaries and parameters in groups."""
    with h5py.File(path, "w") as file:
        file.attrs["dataset_name"] = "acoustic_scattering_inclusions"
        file.attrs["n_trajectories"] = 24
        for name, values in (("t", np.linspace(0, 2, 6)), ("x", None), ("y", None)):
            key = "time" if name == "t" else name
            axis = np.linspace(0, 1, 16, endpoint=False) if values is None else values
            file[f"dimensions/{key}"] = axis.astype("f4")
        for axis in "xy":
            group = file.create_group(f"boundary_conditions/{axis}_periodic")
            group.attrs["bc_type"] = "PERIODIC"
        for seed, name in enumerate(("pressure", "density")):
            file[f"t0_fields/{name}"] = moving(24, 6, 16, 16, seed=seed).astype("f4")
        velocity = [moving(24, 6, 16, 16, seed=seed) for seed in (7, 8)]
        file["t1_fields/velocity"] = np.stack(velocity, axis=-1).astype("f4")


def burgers_shock(path: Path) -> None:
    """PINNs, burgers_shock.mat: one trajectory, (x, time), on [-1, 1]."""
    u = moving(1, 100, 256)[0]
    x, t = np.linspace(-1, 1, 256)[:, None], np.linspace(0, 0.99, 100)[:, None]
    savemat(path, {"x": x, "t": t, "usol": u.T})


def schrodinger(path: Path) -> None:
    """PDE-FIND and PINNs, NLS.mat: one complex trajectory, (x, time)."""
    u = moving(1, 80, 128)[0] + 1j * moving(1, 80, 128, seed=1)[0]
    x, tt = np.linspace(-5, 5, 128, endpoint=False)[None], np.linspace(0, 1.57, 80)[None]
    savemat(path, {"x": x, "tt": tt, "uu": u.T}, do_compression=True)


def cylinder_wake(path: Path) -> None:
    """PINNs, cylinder_nektar_wake.mat: points, and (point, component, time)."""
    points = np.random.default_rng(0).uniform((1, -2), (8, 2), (300, 2))
    t = np.arange(0, 12, 0.1)[:, None]
    phase = points[:, 0, None] - t.T
    flow = np.stack([1 + 0.3 * np.sin(phase), 0.3 * np.cos(phase) * points[:, 1, None]], axis=1)
    savemat(path, {"X_star": points, "t": t, "U_star": flow, "p_star": np.sin(2 * phase)})


def elasticity(folder: Path) -> None:
    """Geo-FNO, Random_UnitCell_*_10.npy: points of each sample and stresses, samples last."""
    draw = np.random.default_rng(0)
    points = draw.uniform(0, 1, (972, 2, 24))
    np.save(folder / "Random_UnitCell_XY_10.npy", points)
    np.save(folder / "Random_UnitCell_sigma_10.npy", 100 + 50 * np.sin(3 * points[:, 0]))


def weather(path: Path) -> None:
    """A netCDF-4 file of a weather archive: packed, with falling latitudes."""
    with h5py.File(path, "w") as file:
        axes = {
            "time": (np.arange(80, dtype="i4"), "hours since 1900-01-01"),
            "latitude": (np.linspace(50, 40, 16, dtype="f4"), "degrees_north"),
            "longitude": (np.linspace(0, 20, 32, dtype="f4"), "degrees_east"),
        }
        for name, (values, units) in axes.items():
            file[name] = values
            file[name].attrs["units"] = units
            file[name].make_scale(name)
        file["t2m"] = (1000 * moving(1, 80, 16, 32)[0]).astype("i2")
        for key, value in (
            ("scale_factor", 0.002),
            ("add_offset", 280.0),
            ("units", "K"),
            ("_FillValue", np.int16(-32767)),
            ("long_name", "2 metre temperature"),
        ):
            file["t2m"].attrs[key] = value
        for k, name in enumerate(axes):
            file["t2m"].dims[k].attach_scale(file[name])


def weather_3(path: Path) -> None:
    """The same as netCDF-3."""
    with netcdf_file(path, "w", mmap=False) as file:
        sizes = {"time": 80, "latitude": 16, "longitude": 32}
        starts = {"time": (0, 79), "latitude": (50, 40), "longitude": (0, 20)}
        for name, n in sizes.items():
            file.createDimension(name, n)
            axis = file.createVariable(name, "f4", (name,))
            axis[:] = np.linspace(*starts[name], n)
            axis.units = {"time": "hours since 1900-01-01"}.get(name, "degrees")
        packed = file.createVariable("t2m", "i2", tuple(sizes))
        packed[:] = (1000 * moving(1, 80, 16, 32)[0]).astype("i2")
        packed.scale_factor, packed.add_offset, packed.units = 0.002, 280.0, "K"


def meshes(folder: Path) -> list[Path]:
    """VTU files of one mesh, a file for each sample."""
    import meshio

    n = 9
    x, y = np.meshgrid(*[np.linspace(0, 2, n)] * 2, indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], axis=-1)
    corner = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
    lower = np.stack([corner, corner + n, corner + 1], axis=-1)
    upper = np.stack([corner + n, corner + n + 1, corner + 1], axis=-1)
    files = list[Path]()
    for k, (a, b) in enumerate(np.random.default_rng(0).uniform(1, 2, (24, 2))):
        load = np.sin(a * points[:, 0]) * np.cos(b * points[:, 1])
        files.append(folder / f"plate{k:02d}.vtu")
        data = {"load": load, "displacement": np.stack([load**2, load, 0 * load], axis=-1)}
        cells = [("triangle", np.concatenate([lower, upper]))]
        meshio.write(files[-1], meshio.Mesh(points, cells, point_data=data))
    return files


def pair_of_tensors(path: Path) -> None:
    """A .pt file of a tuple of the input and the target."""
    import torch

    a = waves(24, 32)
    torch.save((torch.from_numpy(a), torch.from_numpy(np.roll(a, 3, -1))), path)


def own_pair(folder: Path) -> list[Path]:
    """Two .npy files."""
    a = waves(24, 32)
    np.save(folder / "initial.npy", a)
    np.save(folder / "final.npy", np.roll(a, 3, -1))
    return [folder / "initial.npy", folder / "final.npy"]


SINGLE = {
    "2D_diff-react_NA_NA.h5": diffusion_reaction,
    "2D_rdb_NA_NA.h5": dam_break,
    "1D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5": compressible,
    "acoustic_scattering_inclusions_chunk_0.hdf5": the_well,
    "burgers_shock.mat": burgers_shock,
    "NLS.mat": schrodinger,
    "cylinder_nektar_wake.mat": cylinder_wake,
    "era5.nc": weather,
    "era5_classic.nc": weather_3,
    "pair.pt": pair_of_tensors,
}


def write(folder: Path) -> dict[str, list[Path]]:
    """Write all files. Returns the files of each layout, by its name."""
    for name, make in SINGLE.items():
        make(folder / name)
    elasticity(folder)
    files = {name: [folder / name] for name in SINGLE}
    files["Random_UnitCell"] = sorted(folder.glob("Random_UnitCell_*.npy"))
    files["plate.vtu"] = meshes(folder)
    files["initial.npy"] = own_pair(folder)
    return files
