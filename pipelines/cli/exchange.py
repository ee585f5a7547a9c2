"""Commands between stores and files of other formats: import and export."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pdegen.schema import SchemaError, parse_override
from pipelines.cli.common import Equation, Overwrite, Resume, SkipFailed, TakeOver, Workers, command
from pipelines.cli.stores import SKIP, check_options, kept, shown_shards, stem
from pipelines.cli.terminal import say


@command(
    "import",
    "pdegen import burgers_data_R10.mat --out data/published.zarr",
    "pdegen import pairs.h5 --input a --target u --grid cell --split train=1000 --split test=100",
)
def import_command(
    files: Annotated[list[Path], typer.Argument(help=".mat, .h5, .npy, .npz or .pt files.")],
    out: Annotated[
        str | None, typer.Option(help="Path or URL of the store; default: data/FILE.zarr.")
    ] = None,
    input: Annotated[str | None, typer.Option(help="Array of the inputs.")] = None,
    target: Annotated[str | None, typer.Option(help="Array of the targets.")] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Grid: periodic, cell or nodal; or one for each axis: cell,nodal."),
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SIZE", help="Size of a split; repeatable.")
    ] = None,
    samples: Annotated[str, typer.Option(help="Axis of the samples: first or last.")] = "first",
    times: Annotated[str | None, typer.Option(help="Axis of the times: first or last.")] = None,
    input_axes: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="All axes of the inputs: sample,channel,x,y."),
    ] = None,
    target_axes: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="All axes of the targets: sample,time,channel,x,y."),
    ] = None,
    boundary: Annotated[
        float | None, typer.Option(help="Known value of the target on the boundary.")
    ] = None,
    workers: Workers = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    take_over: TakeOver = False,
    skip_failed: SkipFailed = False,
) -> None:
    """Convert published or other files to a store."""
    from pdegen.domains import GRIDS
    from pdegen.formats.declaration import Declaration
    from pdegen.formats.importing import import_files
    from pdegen.generation.generate import Options

    shown = shown_shards(f"importing {files[0].name}, shards")
    options = Options(workers, "threads", resume, overwrite, take_over, skip_failed, shown)
    check_options(options)
    declared = Declaration(
        input=input,
        target=target,
        grid=grid and ",".join(_word("grid", one, tuple(GRIDS)) for one in grid.split(",")),
        splits=_sizes(split),
        samples=_word("samples", samples, ("first", "last")),
        times=_word("times", times, ("first", "last")),
        input_axes=tuple(input_axes.split(",")) if input_axes else None,
        target_axes=tuple(target_axes.split(",")) if target_axes else None,
        boundary=boundary,
    )
    url = f"data/{files[0].stem}.zarr" if out is None else out
    with kept(url, f"{SKIP}, or correct the file"):
        say(import_files(files, url, declared, **vars(options)).url)


def _word(what: str, word: str | None, known: tuple[str, ...]) -> Any:
    if word is not None and word not in known:
        raise SchemaError(f"unknown {what} {word!r}: known: {', '.join(known)}")
    return word


def _sizes(texts: list[str] | None) -> dict[str, int] | None:
    if not texts:
        return None
    pairs = [parse_override(text) for text in texts]
    sizes = dict(pairs)
    if len(sizes) < len(pairs):
        raise SchemaError(f"--split gives each split once, got {', '.join(texts)}")
    for name, size in sizes.items():
        _word("split", name, ("train", "validation", "test"))
        if type(size) is not int or size < 1:
            raise SchemaError(f"split {name}: its size is a whole number >= 1, got {size!r}")
    return sizes


@command(
    "export",
    "pdegen export data/burgers.zarr --format mat --out burgers.mat",
    "pdegen export data/burgers.zarr --format huggingface --out burgers",
    "pdegen export runs/first --format model --out models/first",
)
def export_command(
    store: Annotated[
        str, typer.Argument(help="Path or URL of a sealed store; of a run for --format model.")
    ],
    format: Annotated[
        str, typer.Option(help="mat, npy, hdf5, pt or huggingface; of a run: model.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder (npy, huggingface, model) to write; default: STORE.FORMAT, here."
        ),
    ] = None,
    overwrite: Overwrite = False,
    equation: Equation = None,
) -> None:
    """Convert a store to a file of another format or a folder for the Hugging Face Hub; a finished
    run to a folder of its model, which `operators.load_model` reads."""
    from pdegen.formats.exporting import export

    path = Path(f"{Path(stem(store)).name}.{format}") if out is None else out
    if format == "model":
        from pipelines.runs.model_folder import export_model

        say(export_model(Path(store), path, overwrite=overwrite))
        return
    recipe_text = None
    if format == "huggingface":
        from pdegen.store.reading import open_sealed
        from pipelines.runs.recipe_text import recipe_text

        recipe_text = recipe_text(open_sealed(store).raw_attributes["recipe"])
    shown = shown_shards("exporting, rows" if recipe_text else "exporting, shards")
    say(export(store, format, path, overwrite=overwrite, recipe_text=recipe_text, progress=shown))
