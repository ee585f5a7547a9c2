"""Commands that convert other formats to stores and stores to other formats: import and export."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.common import (
    Overwrite,
    Plugin,
    Resume,
    SkipFailed,
    TakeOver,
    Workers,
    by_axis,
    command,
    note,
    numbers_of,
    one_of,
    say,
    sizes_of,
)
from pipelines.cli.stores import SKIP, check_options, keep_shards, shown_shards, stem

if TYPE_CHECKING:
    from pdegen.formats.plan import ImportOptions
    from pdegen.generation.generate import Options
    from pdegen.store.reading import Store

ImportedFiles = Annotated[
    list[Path],
    typer.Argument(
        help=".mat, .h5, .nc, .npy, .npz, .pt, .vtu, .msh, .grib, Zarr ...; or a folder."
    ),
]
StoreOut = Annotated[
    str | None, typer.Option(help="Path or URL of the store; default: data/FILE.zarr.")
]
InputArrays = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Name of the input array; repeatable, for channels."),
]
TargetArrays = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Name of the target array; repeatable, for channels."),
]
GridKinds = Annotated[
    str | None,
    typer.Option(
        help="Grid: periodic, cell or nodal, or one per axis: cell,nodal; or curvilinear or cloud."
    ),
]
SplitSizes = Annotated[
    list[str] | None, typer.Option(metavar="NAME=SIZE", help="Size of a split; repeatable.")
]
SampleAxis = Annotated[
    str,
    typer.Option(help="Axis of the samples: first or last; none, or files: each file is one."),
]
PointArray = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Array with the points of a cloud or mesh."),
]
CellArray = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Array with the corners of the cells of a cloud."),
]
EdgeArray = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Array that marks or numbers the points on the boundary."),
]
MaskArray = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Array that is 1 where there are values, or missing: where the first sample has any.",
    ),
]
WindowLength = Annotated[
    int | None,
    typer.Option(help="Number of times in a window of a trajectory; each window is a sample."),
]
WindowStride = Annotated[
    int | None, typer.Option(help="Distance between two windows; default: their length.")
]
Times = Annotated[
    str | None,
    typer.Option(help="Axis of the times: first or last; or the times of all frames: 0,0.5,2."),
]
CoordinateArrays = Annotated[
    list[str] | None,
    typer.Option(
        metavar="AXIS=NAME",
        help="Array of the positions along x, y or z, or of the times: time=t; repeatable.",
    ),
]
AxisLengths = Annotated[
    list[str] | None,
    typer.Option(metavar="AXIS=LENGTH", help="Length of an axis: x=10; repeatable."),
]
InputAxes = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="All axes of the inputs: sample,channel,x,y."),
]
TargetAxes = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="All axes of the targets: sample,time,channel,x,y."),
]
BoundaryValue = Annotated[
    float | None, typer.Option(help="Known value of the target on the boundary.")
]


@command(
    "import",
    "pdegen import burgers_data_R10.mat --out data/published.zarr",
    "pdegen import pairs.h5 --input a --target u --grid cell --split train=1000 --split test=100",
)
def import_command(
    files: ImportedFiles,
    out: StoreOut = None,
    input: InputArrays = None,
    target: TargetArrays = None,
    grid: GridKinds = None,
    split: SplitSizes = None,
    samples: SampleAxis = "first",
    times: Times = None,
    coordinate: CoordinateArrays = None,
    length: AxisLengths = None,
    input_axes: InputAxes = None,
    target_axes: TargetAxes = None,
    boundary: BoundaryValue = None,
    points: PointArray = None,
    cells: CellArray = None,
    edge: EdgeArray = None,
    mask: MaskArray = None,
    window: WindowLength = None,
    stride: WindowStride = None,
    workers: Workers = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    take_over: TakeOver = False,
    skip_failed: SkipFailed = False,
) -> None:
    """Convert files of other formats to a store. Published datasets are recognised.

    Without options, a file that is not recognised is listed: its arrays, and a command that imports
    it.
    """
    from pdegen.domains import GRIDS
    from pdegen.formats.plan import ImportOptions
    from pdegen.generation.generate import Options

    shown = shown_shards(f"importing {files[0].name}, shards")
    options = Options(workers, "threads", resume, overwrite, take_over, skip_failed, shown)
    check_options(options)
    moments = None if times in (None, "first", "last") else numbers_of("times", times)
    kinds = (*GRIDS, *(() if grid and "," in grid else ("curvilinear", "cloud")))
    declaration = ImportOptions(
        input=tuple(input) if input else None,
        target=tuple(target) if target else None,
        grid=grid and ",".join(one_of("grid", word, kinds) for word in grid.split(",")),
        splits=sizes_of(split),
        samples=one_of("samples", samples, ("first", "last", "none", "files")),
        times=None if moments else one_of("times", times, ("first", "last")),
        moments=moments,
        coordinates=by_axis("coordinate", coordinate, ("x", "y", "z", "time")),
        lengths=by_axis("length", length, ("x", "y", "z"), numbers=True),
        input_axes=tuple(input_axes.split(",")) if input_axes else None,
        target_axes=tuple(target_axes.split(",")) if target_axes else None,
        boundary=boundary,
        points=points,
        cells=cells,
        edge=edge,
        mask=mask,
        window=window,
        stride=stride,
    )
    url = f"data/{files[0].stem}.zarr" if out is None else out
    with keep_shards(url, f"{SKIP}, or correct the file"):
        say(_imported(files, url, declaration, options).url)


def _imported(
    files: list[Path], url: str, declaration: "ImportOptions", options: "Options"
) -> "Store":
    """Import files, or list the first one if nothing is known and said about it."""
    from pdegen.formats.described import NotDescribedError
    from pdegen.formats.importing import import_files, listing

    try:
        store = import_files(
            files, url, declaration, lambda line: note(f"pdegen: {line}"), **vars(options)
        )
    except NotDescribedError:
        if declaration.is_default:
            for line in listing(files):
                say(line)
        raise
    if warning := store.raw_attributes["imported"].get("warning"):
        note(f"pdegen: warning: {warning}")
    return store


@command(
    "export",
    "pdegen export data/burgers.zarr --format mat --out burgers.mat",
    "pdegen export data/burgers.zarr --format nc --out burgers.nc",
    "pdegen export data/burgers.zarr --format huggingface --out burgers",
    "pdegen export runs/first --format model --out models/first",
)
def export_command(
    store: Annotated[
        str,
        typer.Argument(help="Path or URL of a sealed store; for --format model, folder of a run."),
    ],
    format: Annotated[
        str, typer.Option(help="mat, npy, hdf5, pt, nc, vtu or huggingface; for a run: model.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder (npy, vtu, huggingface, model) to write; default: STORE.FORMAT."
        ),
    ] = None,
    overwrite: Overwrite = False,
    plugin: Plugin = None,
) -> None:
    """Convert a store to another format, or a finished run to a folder of its model.

    The folder of a model is what `operators.load_model` reads.
    """
    from pdegen.formats.exporting import export

    path = Path(f"{Path(stem(store)).name}.{format}") if out is None else out
    if format == "model":
        from pipelines.runs.model_folder import export_model

        say(export_model(Path(store), path, overwrite=overwrite))
        return
    text = None
    if format == "huggingface":
        from pdegen.store.reading import open_sealed
        from pipelines.runs.model_folder import recipe_text

        text = recipe_text(open_sealed(store).raw_attributes["recipe"])
    shown = shown_shards("exporting, rows" if text else "exporting, shards")
    say(export(store, format, path, overwrite=overwrite, recipe_text=text, progress=shown))
