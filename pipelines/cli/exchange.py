"""Commands that convert other formats to stores and stores to other formats: import and export."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from pdegen.schema import SchemaError, parse_override
from pipelines.cli.common import Overwrite, Plugin, Resume, SkipFailed, TakeOver, Workers, command
from pipelines.cli.stores import SKIP, check_options, keep_shards, shown_shards, stem
from pipelines.cli.terminal import note, say


@command(
    "import",
    "pdegen import burgers_data_R10.mat --out data/published.zarr",
    "pdegen import pairs.h5 --input a --target u --grid cell --split train=1000 --split test=100",
)
def import_command(
    files: Annotated[list[Path], typer.Argument(help=".mat, .h5, .npy, .npz, .pt; or a folder.")],
    out: Annotated[
        str | None, typer.Option(help="Path or URL of the store; default: data/FILE.zarr.")
    ] = None,
    input: Annotated[str | None, typer.Option(help="Name of the input array.")] = None,
    target: Annotated[str | None, typer.Option(help="Name of the target array.")] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Grid: periodic, cell or nodal, or one per axis: cell,nodal."),
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
    """Convert files of other formats to a store. Published datasets are recognised."""
    from pdegen.domains import GRIDS
    from pdegen.formats.importing import import_files
    from pdegen.formats.plan import ImportOptions
    from pdegen.generation.generate import Options

    shown = shown_shards(f"importing {files[0].name}, shards")
    options = Options(workers, "threads", resume, overwrite, take_over, skip_failed, shown)
    check_options(options)
    if boundary is not None and not math.isfinite(boundary):
        raise SchemaError(f"--boundary must be a finite number, got {boundary}")
    declaration = ImportOptions(
        input=input,
        target=target,
        grid=grid and ",".join(_word("grid", word, tuple(GRIDS)) for word in grid.split(",")),
        splits=_sizes(split),
        samples=_word("samples", samples, ("first", "last")),
        times=_word("times", times, ("first", "last")),
        input_axes=tuple(input_axes.split(",")) if input_axes else None,
        target_axes=tuple(target_axes.split(",")) if target_axes else None,
        boundary=boundary,
    )
    url = f"data/{files[0].stem}.zarr" if out is None else out
    with keep_shards(url, f"{SKIP}, or correct the file"):
        store = import_files(files, url, declaration, **vars(options))
    if warning := store.raw_attributes["imported"].get("warning"):
        note(f"pdegen: warning: {warning}")
    say(store.url)


def _word(option: str, word: str | None, allowed: tuple[str, ...]) -> Any:
    """Return the value of an option. Raises SchemaError if the option does not allow the value."""
    if word is not None and word not in allowed:
        raise SchemaError(f"unknown {option} {word!r}: known: {', '.join(allowed)}")
    return word


def _sizes(texts: list[str] | None) -> dict[str, int] | None:
    """Parse texts NAME=SIZE to a table of split sizes; None if there are no texts."""
    if not texts:
        return None
    if wrong := [text for text in texts if "=" not in text]:
        raise SchemaError(f"--split must be NAME=SIZE, got {wrong[0]!r}")
    pairs = [parse_override(text) for text in texts]
    sizes = dict(pairs)
    if len(sizes) < len(pairs):
        raise SchemaError(f"--split must name each split once, got {', '.join(texts)}")
    for name, size in sizes.items():
        _word("split", name, ("train", "validation", "test"))
        if type(size) is not int or size < 1:
            raise SchemaError(f"split {name}: the size must be a whole number >= 1, got {size!r}")
    return sizes


@command(
    "export",
    "pdegen export data/burgers.zarr --format mat --out burgers.mat",
    "pdegen export data/burgers.zarr --format huggingface --out burgers",
    "pdegen export runs/first --format model --out models/first",
)
def export_command(
    store: Annotated[
        str,
        typer.Argument(help="Path or URL of a sealed store; for --format model, folder of a run."),
    ],
    format: Annotated[
        str, typer.Option(help="mat, npy, hdf5, pt or huggingface; for a run: model.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder (npy, huggingface, model) to write; default: STORE.FORMAT."
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
