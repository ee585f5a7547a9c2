"""HDF5 files of The Well. They contain trajectories of fields. Fields of the same tensor rank are
in one group.

The format is described in PolymathicAI/the_well, docs/data_format.md. Scalars are in the group
`t0_fields` and have the axes (trajectory, time, x, y, z). Vectors are in `t1_fields` and have an
additional last axis for the components. All trajectories have the same points. Each published split
is a separate file.
"""

from __future__ import annotations

from pdegen.formats.arrays import Contents, FormatError
from pdegen.formats.import_options import ImportOptions
from pdegen.formats.plan import SPACE
from pdegen.formats.published import FileEntry, Published


def trajectories(contents: Contents, import_options: ImportOptions) -> Published | None:
    """The description of a file from which one field is imported. The first frame of the field is
    the input, and the other frames are the target.

    None if the file is not of The Well. Raises FormatError if there are several fields and
    `import_options.input` does not name one of them. Also raises FormatError if
    `import_options.grid` is missing and the boundary conditions do not determine the grid.
    """
    fields = [name for name in contents.arrays if name.startswith(("t0_fields/", "t1_fields/"))]
    if "dimensions/time" not in contents.arrays or not fields:
        return None
    name = import_options.input or (fields[0] if len(fields) == 1 else "")
    if name in contents.arrays and import_options.target not in (None, name):
        return None
    if name not in fields:
        raise FormatError(
            f"{contents.path.name} holds several fields or not the given one: choose as input one "
            f"of {', '.join(fields)}"
        )
    array, times = contents.array(name), contents.array("dimensions/time").values()
    points = {
        dim: contents.array(f"dimensions/{dim}").values()
        for dim in SPACE
        if f"dimensions/{dim}" in contents.arrays
    }
    # a field without an axis or time, or with a grid for each trajectory, has another shape
    group, _, field = name.partition("/")
    vector = group == "t1_fields"
    shape = (times.size, *(x.size for x in points.values()), *([len(points)] if vector else []))
    lines = all(values.ndim == 1 for values in (times, *points.values()))
    if array.shape[1:] != shape or times.size < 2 or not lines:
        raise FormatError(
            f"{array.where} {array.shape} is not a trajectory on the {times.size} times and "
            f"{' x '.join(str(x.size) for x in points.values())} points of the file"
        )
    kind = import_options.grid or _periodic(contents)
    if kind is None:
        raise FormatError(
            f"{contents.path.name}: its boundaries are not all periodic: give the grid, cell or "
            "nodal, or a word for each axis"
        )
    axes = ("sample", "time", *points, *(["channel"] if vector else []))
    title = contents.attributes.get("@dataset_name", contents.path.name)
    return Published(
        name="the-well",
        title=f"The Well, {title}: {field}",
        equation=f"as described for {title} by The Well",
        source="Ohana et al., NeurIPS 2024; its splits are files of their own",
        grid=kind,
        entries=(
            FileEntry("a", name, axes, f"{field} at the first time", (0, 1)),
            FileEntry("u", name, axes, f"{field} at the later times", (1, None)),
        ),
        splits=lambda counts: {"train": sum(counts)},
        parameters={
            **_parameters(contents),
            **({"channels": [f"{field}_{dim}" for dim in points]} if vector else {}),
        },
        points=points,
        times=times[1:],
    )


def _periodic(contents: Contents) -> str | None:
    kinds = [
        str(value).upper()
        for key, value in contents.attributes.items()
        if key.startswith("boundary_conditions/") and key.endswith("@bc_type")
    ]
    return "periodic" if kinds and set(kinds) == {"PERIODIC"} else None


def _parameters(contents: Contents) -> dict[str, float]:
    """Read the parameters of the simulation from the attributes of a file."""
    sizes = {"@n_spatial_dims", "@n_trajectories"}
    return {
        key.removeprefix("@"): float(value)
        for key, value in contents.attributes.items()
        if key.startswith("@") and key not in sizes and isinstance(value, float)
    }
