"""Shared options, progress lines and interrupts of the commands.

Modules of commands do not import `annotations` from `__future__`, because Typer would have to
compile each annotation from its text.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TextIO, TypeVar

import typer
from typer.core import TyperCommand

from pdegen.schema import SchemaError, parse_override, parse_overrides, visible
from pdegen.shipped import recipe_names
from pdegen.version import __version__
from pipelines.config.shipped import file_of, names, read_benchmark

# Completion of names on the command line with the tab key.


def recipes() -> list[str]:
    return recipe_names()


def experiments() -> list[str]:
    return names("experiment")


def benchmarks() -> list[str]:
    return names("benchmark")


def declarations() -> list[str]:
    return sorted({*recipes(), *experiments(), *benchmarks()})


def finished_runs(incomplete: str) -> list[str]:
    """Folders of finished runs, directly in the folder typed so far or one level below."""
    is_folder = not incomplete or incomplete.endswith("/")
    folder = Path(incomplete) if is_folder else Path(incomplete).parent
    scores = [path for depth in ("*", "*/*") for path in folder.glob(f"{depth}/scores.json")]
    names = [str(path.parent) for path in scores]
    return sorted(name for name in names if name.startswith(incomplete))


def operators() -> list[str]:
    """Names of operators.

    They are read from the source text of the registry, because importing it takes a second.
    """
    registry = Path(__file__).parents[2] / "operators" / "registry.py"
    return re.findall(r'^register\("([^"]+)"', registry.read_text(), re.M)


def operators_of_benchmark(ctx: typer.Context) -> list[str]:
    return _table(ctx, "operators")


def datasets_of_benchmark(ctx: typer.Context) -> list[str]:
    return _table(ctx, "datasets")


def _table(ctx: typer.Context, name: str) -> list[str]:
    """Keys of a table in the file of the benchmark that the command line names."""
    # while the value of an option is typed, the other words are in `ctx.args`
    defaults = [option.default for option in ctx.command.params if option.name == "name"]
    words = [ctx.params.get("name"), *ctx.args, *defaults]
    benchmark = next((word for word in words if isinstance(word, str)), None)
    try:
        table: Any = {} if benchmark is None else read_benchmark(file_of("benchmark", benchmark))
    except SchemaError:  # its name is still incomplete
        return []
    return list(table.get(name, ()))


# Output of the commands.


_redrawn = False  # whether the last line of stderr may be redrawn


def shown(text: str) -> str:
    """Escape control characters and Unicode characters that reorder or hide text.

    >>> shown("\\x1b[2Jverified")
    '\\\\x1b[2Jverified'
    """
    return visible(str(text))


def say(line: object) -> None:
    """Print a line of the result on stdout."""
    _end_line()
    _write(sys.stdout, f"{shown(str(line))}\n")


def note(line: object) -> None:
    """Print a message on stderr."""
    _end_line()
    _write(sys.stderr, f"{shown(str(line))}\n")


def redraw(line: object, *, last: bool = False) -> None:
    """Replace the last line on a terminal (stderr). The next output starts a new line."""
    global _redrawn
    _redrawn = not last
    end = "\n" if last else ""
    _write(sys.stderr, f"\r\033[K{shown(str(line))}{end}")


def _end_line() -> None:
    """End the current line if it was redrawn."""
    global _redrawn
    if _redrawn:
        _redrawn = False
        _write(sys.stderr, "\n")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # closed when the command began: `>&-`
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:  # the reader has closed the pipe; the job finishes anyway
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


app = typer.Typer(
    name="pdegen",
    help="Datasets of PDE solutions from recipes, and neural operators trained on them.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Command(TyperCommand):
    """A command that refuses an option with one value if it is given twice, instead of using the
    last value."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for parameter in order:
            single = not (
                getattr(parameter, "multiple", False) or getattr(parameter, "is_flag", False)
            )
            if parameter.param_type_name == "option" and single and order.count(parameter) > 1:
                raise SchemaError(f"{parameter.opts[0]} is given twice: it takes one value")
        return super().parse_args(ctx, args)


EXAMPLES: dict[str, tuple[str, ...]] = {}  # examples by command, such as "study noise"
Function = TypeVar("Function", bound=Callable[..., None])


def command(words: str, *examples: str, of: typer.Typer = app) -> Callable[[Function], Function]:
    """Register the decorated function as a command.

    The help of the command ends with the examples. Lists of commands show the first paragraph of
    the function's docstring.
    """
    EXAMPLES[words] = examples
    lines = ["\b", "Examples:", *(f"  {example}" for example in examples)]

    def register(function: Function) -> Function:
        summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
        name = words.rpartition(" ")[2]
        short = " ".join(summary.split())
        return of.command(name, cls=Command, short_help=short, epilog="\n".join(lines))(function)

    return register


def _version(requested: bool) -> None:
    if requested:
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
            "--debug", help="Show the traceback of an error; also allowed after a command."
        ),
    ] = False,
) -> None:
    """Options before the name of a command."""


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key (`pdegen keys` lists them); repeatable."
    ),
]


def _run_files(paths: list[str] | None) -> list[str] | None:
    from pdegen.plugins import load_plugin

    for path in paths or ():
        load_plugin(path)
    return paths


Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        "--equation",
        "--operator",
        metavar="FILE.py",
        callback=_run_files,
        help="Python file to execute, which registers your own equation, operator, optimizer, "
        "schedule or loss; repeatable.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted job.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing result.")]
Stream = Annotated[
    str | None,
    typer.Option(
        metavar="RECIPE",
        help="Train on samples of this recipe that are solved during training.",
        autocompletion=recipes,
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER",
        help="Log epochs to tensorboard or mlflow[:URI] as well as history.csv; repeatable.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPERATOR",
        help="Train only this operator; repeatable.",
        autocompletion=operators_of_benchmark,
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Run a small version for two cores.")]
Trainings = Annotated[int, typer.Option("--workers", min=1, help="Number of trainings at a time.")]
On = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DATASET",
        help="Train only on this dataset; repeatable.",
        autocompletion=datasets_of_benchmark,
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of tasks at a time; default: one per core.")
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
    str,
    typer.Option(
        help="threads, processes, dask (processes with a dashboard), mpi, slurm, or the address "
        "of a Dask scheduler."
    ),
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take the store from a job that has ended.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
SkipFailed = Annotated[
    bool, typer.Option("--skip-failed", help="Leave out samples that cannot be computed.")
]


class Failed(Exception):
    """The job ran and failed: exit status 1."""

    exit_status = 1


class Interrupted(Exception):
    """The user interrupted a job: exit status 130.

    The message states where the finished parts of the job are saved.
    """


def parsed(texts: list[str] | None) -> dict[str, Any]:
    """Parse texts ["a.b=value", ...] into overrides {"a.b": value, ...}.

    Raises SchemaError if a text is not KEY=VALUE.
    """
    return parse_overrides(texts or [])


def with_sizes(
    overrides: dict[str, Any], samples: int | None, resolution: int | None
) -> dict[str, Any]:
    """The overrides of a recipe with those of --samples and --resolution.

    Raises SchemaError if --set sets the same key.
    """
    options = {"samples": samples, "resolution": resolution}
    for key, value in options.items():
        full = "problem.resolution" if key == "resolution" else key
        if value is not None and (key in overrides or full in overrides):
            raise SchemaError(f"--{key} {value} and --set {key} both set {full}: leave one out")
        if value is not None:
            overrides = {**overrides, full: value}
    return overrides


FEW = 16  # below this number of samples, single ones dominate the mean error


def warn_of_few(splits: Mapping[str, int]) -> None:
    """Print a warning if evaluation splits have too few samples for a meaningful mean error."""
    few = [f"{size} {name}" for name, size in splits.items() if name != "train" and size < FEW]
    if few:
        note(
            f"pdegen: warning: {' and '.join(few)} samples: mean errors depend on single "
            f"samples; use {FEW} or more to compare operators"
        )


def print_json(content: object) -> None:
    for line in json.dumps(content, indent=1, ensure_ascii=False).splitlines():
        say(line)


def number(value: float) -> str:
    return f"{value:.3e}"


class Reporter:
    """Prints progress.

    On a terminal, it redraws a single line. Otherwise it prints a line every `every` seconds.
    """

    def __init__(self, title: str, every: float = 10.0) -> None:
        self.title, self.every = title, every
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
        text = f"{self.title}: {done}/{total}, {_rate(rate)}, {left:.0f} s left{more}"
        if self._terminal:
            redraw(text, last=last)
        else:
            note(text)


def _rate(rate: float) -> str:
    return f"{rate:.3g}/s" if rate >= 1 else f"{1 / rate:.3g} s each"


class LastingInterrupt:
    """Remembers that the user pressed Ctrl-C.

    Python ignores a KeyboardInterrupt in some places, such as destructors. Therefore `check` raises
    KeyboardInterrupt again.
    """

    requested: ClassVar[bool] = False

    def __enter__(self) -> Self:
        self._old = signal.signal(signal.SIGINT, self._note)
        self._hook = sys.unraisablehook
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._old)
        sys.unraisablehook = self._hook
        logging.disable(logging.NOTSET)

    def _note(self, number: int, frame: object) -> None:
        LastingInterrupt.requested = True
        logging.disable()  # Dask logs the end of its workers
        sys.unraisablehook = lambda unraisable: None  # ignored exceptions are not printed
        raise KeyboardInterrupt

    @classmethod
    def check(cls) -> None:
        """Raise KeyboardInterrupt if the user has pressed Ctrl-C."""
        if cls.requested:
            raise KeyboardInterrupt


class Interrupts:
    """Records Ctrl-C or SIGTERM, so that a loop can check `requested` and stop.

    A second signal raises KeyboardInterrupt immediately.
    """

    def __enter__(self) -> Interrupts:
        self._requested = False
        self._old = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True

    def requested(self) -> bool:
        return self._requested


# Values of options that are words with several parts.


def one_of(option: str, word: str | None, allowed: tuple[str, ...]) -> Any:
    """Return the value of an option. Raises SchemaError if the option does not allow the value."""
    if word is not None and word not in allowed:
        raise SchemaError(f"unknown {option} {word!r}: known: {', '.join(allowed)}")
    return word


def numbers_of(option: str, text: str) -> tuple[float, ...]:
    """Parse the numbers of an option, which are separated by commas."""
    try:
        numbers = tuple(map(float, text.split(",")))
    except ValueError:
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)):
        raise SchemaError(
            f"--{option} must be first, last or numbers such as 0,0.5,2, got {text!r}"
        )
    return numbers


def by_axis(
    option: str, texts: list[str] | None, axes: tuple[str, ...], numbers: bool = False
) -> dict[str, Any]:
    """Parse texts AXIS=VALUE, whose values are words or numbers."""
    words: dict[str, Any] = {}
    for text in texts or []:
        axis, _, word = text.partition("=")
        if not word:
            raise SchemaError(f"--{option} must be AXIS=VALUE, got {text!r}")
        if one_of(option, axis, axes) in words:
            raise SchemaError(f"--{option} must name each axis once, got {', '.join(texts or [])}")
        words[axis] = word
        if numbers:
            try:
                words[axis] = float(word)
            except ValueError:
                raise SchemaError(f"--{option} must be AXIS=NUMBER, got {text!r}") from None
    return words


def sizes_of(texts: list[str] | None) -> dict[str, int] | None:
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
        one_of("split", name, ("train", "validation", "test"))
        if type(size) is not int or size < 1:
            raise SchemaError(f"split {name}: the size must be a whole number >= 1, got {size!r}")
    return sizes
