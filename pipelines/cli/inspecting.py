"""Commands that show stores and finished runs: info, plot, compare."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.common import AsJson, command, print_json, warn_of_few
from pipelines.cli.stores import in_no_split, in_words, label_errors, warn_of_label_errors
from pipelines.cli.terminal import say

if TYPE_CHECKING:
    from pdegen.store.reading import Store
from pipelines.cli import completion
from pipelines.cli.common import Device, Overwrite, Plugin


@command("info", "pdegen info data/burgers.zarr", "pdegen info data/burgers.zarr --json")
def info_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.")], as_json: AsJson = False
) -> None:
    """Print the contents of a store: variables, splits, recipe, provenance."""
    from pdegen.generation.generate import runs
    from pdegen.store.reading import Store

    opened = Store(store)
    if as_json:
        print_json({**_contents(opened), "runs": runs(opened.objects)})
        return
    held, attributes = opened.metadata, opened.raw_attributes
    unfinished = f"not sealed (complete it by pdegen {opened.command} ... --resume)"
    state = "sealed" if opened.sealed else unfinished
    say(f"{store}: {held.title}")
    say(f"{state}, fingerprint {held.fingerprint}")
    say(f"equation    {held.equation}")
    for name in opened.variables:
        array = opened.arrays[name]
        say(f"{name:11} {array.shape} {array.dtype}  {array.metadata.long_name}")
    for name, (start, stop) in held.splits.items():
        say(f"{name:11} samples {start} to {stop - 1}")
    for first, last in in_no_split(held.splits, opened.samples):
        say(f"{'no split':11} samples {first} to {last}")
    if opened.skipped:
        say(f"skipped     samples {', '.join(map(str, opened.skipped))}")
    for name, values in held.statistics.items():
        say(f"{name:11} training mean {values['mean']:.6g}, std {values['std']:.6g}")
    if held.sampled_inputs:
        say(f"inputs      {held.sampled_inputs.sentence}")
    for name in ("noise", "parent", "imported"):
        if name in attributes:
            say(f"{name:11} {json.dumps(attributes[name])}")
    errors = label_errors(opened)
    say(f"label error {in_words(errors)}")
    say(f"recipe      {json.dumps(attributes['recipe'])}")
    say(f"made by     {json.dumps(attributes['provenance'])}")
    for run in runs(opened.objects):
        say(f"made on     {run}")
    warn_of_few({name: stop - start for name, (start, stop) in held.splits.items()})
    warn_of_label_errors(errors)


def _contents(store: "Store") -> dict[str, object]:
    """Contents of a store that `info --json` prints."""
    held, attributes = store.metadata, store.raw_attributes
    arrays = {name: store.arrays[name] for name in store.variables}
    return {
        "store": store.url,
        "title": held.title,
        "sealed": store.sealed,
        "fingerprint": held.fingerprint,
        "equation": held.equation,
        "samples": store.samples,
        "variables": {
            name: {
                "shape": list(array.shape),
                "type": str(array.dtype),
                "meaning": array.metadata.long_name,
                "unit": array.metadata.units,
                "role": array.metadata.role,
            }
            for name, array in arrays.items()
        },
        "splits": {name: list(ends) for name, ends in held.splits.items()},
        "skipped": store.skipped,
        "statistics": held.statistics,
        "label_error": label_errors(store),
        **{
            name: attributes[name]
            for name in ("noise", "parent", "imported", "sampled_inputs")
            if name in attributes
        },
        "recipe": attributes["recipe"],
        "provenance": attributes["provenance"],
    }


@command("plot", "pdegen plot data/burgers.zarr --out burgers.png")
def plot_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.")],
    sample: Annotated[
        int | None, typer.Option(help="Number of the sample; default: several samples.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Image to write: .png, .svg or .pdf.")] = Path(
        "samples.png"
    ),
) -> None:
    """Plot samples of a store."""
    from pipelines.reports.pictures import plot_store

    say(plot_store(store, sample, out))


@command(
    "compare",
    "pdegen compare runs/first runs/second",
    "pdegen compare runs/seed-0 runs/seed-1 runs/wide --out runs/widths --overwrite",
)
def compare_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Folders of two or more finished runs.",
            autocompletion=completion.finished_runs,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the comparison.")] = Path("runs/compared"),
    data: Annotated[
        str | None, typer.Option(help="Store of all runs; default: the path of each in training.")
    ] = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    plugin: Plugin = None,
) -> None:
    """Compare finished runs in a report: settings, scores, learning curves, predictions.

    Scores are compared with those of the first run, sample by sample, with intervals. Runs that
    differ only by their seed share a row. Runs on other test samples are compared by their mean
    scores only.
    """
    from pipelines.reports.comparison_report import write_comparison
    from pipelines.runs.checks import check_device
    from pipelines.runs.comparison import read_comparison

    comparison = read_comparison(runs, out, check_device(device), data, overwrite)
    say(write_comparison(comparison, out, overwrite))
