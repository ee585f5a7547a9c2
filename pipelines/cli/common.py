"""What the commands share: options, progress, interruptions. They do without `annotations` of
`__future__`, for Typer would compile the text of each option twice."""

from __future__ import annotations

import inspect
import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

import typer

from pdegen.schema import parse_override
from pdegen.version import __version__
from pipelines.cli import completion
from pipelines.cli.terminal import note, redraw, say

app = typer.Typer(
    name="pdegen",
    help="Datasets of PDE solutions from recipes, and neural operators trained on them.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
EXAMPLES: dict[str, tuple[str, ...]] = {}  # by the words of a command
Function = TypeVar("Function", bound=Callable[..., None])


def command(words: str, *examples: str, of: typer.Typer = app) -> Callable[[Function], Function]:
    """Registers a command with examples, which its help ends with; lists show its first
    paragraph."""
    EXAMPLES[words] = examples
    lines = ["\b", "Examples:", *(f"  {example}" for example in examples)]

    def register(function: Function) -> Function:
        summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
        name = words.rpartition(" ")[2]
        short = " ".join(summary.split())
        return of.command(name, short_help=short, epilog="\n".join(lines))(function)

    return register


def _version(asked: bool) -> None:
    if asked:
        say(f"pdegen {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show the traceback of an error; after a command's name, too."
        ),
    ] = False,
) -> None:
    """The options that stand before a command."""


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key, see `pdegen keys`; repeatable."
    ),
]


def _run_files(paths: list[str] | None) -> list[str] | None:
    from pdegen.equations.registry import load_file

    for path in paths or ():
        load_file(path)
    return paths


Equation = Annotated[
    list[str] | None,
    typer.Option(
        "--equation",
        metavar="FILE.py",
        callback=_run_files,
        help="Run a Python file that registers an equation of your own; repeatable.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted job.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing result.")]
Stream = Annotated[
    str | None,
    typer.Option(
        metavar="RECIPE",
        help="Train on samples of this recipe, solved during training.",
        autocompletion=completion.recipes,
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER",
        help="Write the epochs to tensorboard or mlflow[:URI], beside history.csv; repeatable.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPERATOR",
        help="Train only this operator; repeatable.",
        autocompletion=completion.operators_of_benchmark,
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Run the small version, for two cores.")]
Trainings = Annotated[int, typer.Option("--workers", min=1, help="Trainings that run at once.")]
On = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DATASET",
        help="Train only on this dataset; repeatable.",
        autocompletion=completion.datasets_of_benchmark,
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Tasks that run at once; default: one a core.")
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Precision = Annotated[
    str, typer.Option(help="Precision of matrix products in training: float32, tf32, bf16 or auto.")
]
Compile = Annotated[
    str,
    typer.Option(
        "--compile", help="torch.compile and CUDA graphs in training: on, off, tuned or auto."
    ),
]
Scheduler = Annotated[
    str, typer.Option(help="threads, processes, mpi, slurm, or the address of a Dask scheduler.")
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take the store from a job that has ended.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
SkipFailed = Annotated[
    bool, typer.Option("--skip-failed", help="Leave out samples that cannot be computed.")
]


class Failed(Exception):
    """A job that ran and failed; the exit status is 1."""

    exit_status = 1


class Interrupted(Exception):
    """Ctrl-C in a job that keeps what it has done, as the message says; the exit status is 130."""


def parsed(texts: list[str] | None) -> dict[str, Any]:
    """{"a.b": value, ...} from ["a.b=value", ...]. Raises SchemaError if a text is not
    KEY=VALUE."""
    return dict(parse_override(text) for text in texts or [])


FEW = 16  # samples: the mean of their errors depends on single ones


def warn_of_few(splits: Mapping[str, int]) -> None:
    """Say where splits are so small that their errors are those of single samples."""
    few = [f"{size} {name}" for name, size in splits.items() if name != "train" and size < FEW]
    if few:
        note(
            f"pdegen: {' and '.join(few)} samples: errors of single samples, not of the law; "
            f"take {FEW} or more to compare"
        )


def print_json(content: object) -> None:
    for line in json.dumps(content, indent=1, ensure_ascii=False).splitlines():
        say(line)


def number(value: float) -> str:
    return f"{value:.3e}"


class Reporter:
    """Progress: one line redrawn on a terminal, otherwise a plain line every `every` seconds."""

    def __init__(self, what: str, every: float = 10.0) -> None:
        self.what, self.every = what, every
        self._terminal = sys.stderr.isatty()
        self._printed = time.monotonic()

    def __call__(self, done: int, total: int, seconds: float, more: str = "") -> None:
        now = time.monotonic()
        last = done == total
        if not (self._terminal or last or now - self._printed >= self.every):
            return
        self._printed = now
        rate = done / seconds if seconds > 0 else float("inf")
        left = (total - done) / rate if rate > 0 else float("inf")
        text = f"{self.what}: {done}/{total}, {_rate(rate)}, {left:.0f} s left{more}"
        if self._terminal:
            redraw(text, last=last)
        else:
            note(text)


def _rate(rate: float) -> str:
    return f"{rate:.3g}/s" if rate >= 1 else f"{1 / rate:.3g} s each"


class LastingInterrupt:
    """Ctrl-C that is not lost where Python ignores exceptions, as in a destructor: the next `check`
    raises it again."""

    asked: ClassVar[bool] = False

    def __enter__(self) -> Self:
        self._old = signal.signal(signal.SIGINT, self._note)
        self._hook = sys.unraisablehook
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._old)
        sys.unraisablehook = self._hook
        logging.disable(logging.NOTSET)

    def _note(self, number: int, frame: object) -> None:
        LastingInterrupt.asked = True
        logging.disable()  # what Dask says of workers that end is no news
        sys.unraisablehook = lambda unraisable: None  # nor where Python ignores the interrupt
        raise KeyboardInterrupt

    @classmethod
    def check(cls) -> None:
        """Raise KeyboardInterrupt if it was asked for."""
        if cls.asked:
            raise KeyboardInterrupt


class Interrupts:
    """Ctrl-C and SIGTERM as a flag that a loop reads; a second Ctrl-C interrupts at once."""

    def __enter__(self) -> Interrupts:
        self._asked = False
        self._old = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def asked(self) -> bool:
        return self._asked
