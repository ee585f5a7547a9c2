"""Text for numbers and settings in reports."""

from collections.abc import Mapping, Sequence
from math import floor, isfinite, log10
from typing import Self

from pdegen.domains import Domain

TAGS = ("equation", "law", "method", "name")  # keys whose value names the part of a recipe


class Number(str):
    """A number as printed text. `full` is the text of the same number with all digits."""

    full: str

    def __new__(cls, printed: str, value: float) -> Self:
        number = super().__new__(cls, printed)
        number.full = repr(float(value))
        return number


def how_read(reading: str) -> str:
    """Describe how training samples are read.

    >>> how_read("resident")
    'all in memory'
    """
    words = {"resident": "all in memory", "streamed": "read ahead from disk"}
    how, *rest = reading.split(",")
    return ",".join([words.get(how, how), *rest])


def part_of(samples: int | None, split: int) -> str:
    """Describe the part of the training split that is used.

    >>> part_of(24, 512), part_of(None, 512)
    ('the first 24 of 512 samples', 'all 512 samples')
    """
    return (
        f"all {split:,} samples"
        if samples is None
        else f"the first {samples:,} of {split:,} samples"
    )


def number_of(count: int, noun: str) -> str:
    """A number with a noun, which is plural unless the number is 1.

    >>> number_of(1, "epoch"), number_of(1200, "epoch")
    ('1 epoch', '1,200 epochs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def scientific(value: float) -> Number:
    """A number with three digits and a power of ten. The power is left out if it is 1.

    >>> scientific(0.0010314), scientific(0.0010314).full, scientific(1.0)
    ('1.03e-3', '0.0010314', '1.00')
    """
    printed = f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return Number(printed.removesuffix("e0"), value)


def significant(value: float) -> Number:
    """A number with three significant digits, zeros at the end included.

    >>> [significant(x) for x in (0.08, 1.0, 123.4, 2.2e-5, 0.0)]
    ['0.0800', '1.00', '123', '2.20e-5', '0']
    """
    if value == 0 or not isfinite(value):
        return Number(f"{value:g}", value)
    return Number(f"{value:#.3g}".replace("e-0", "e-").replace("e+0", "e").removesuffix("."), value)


def plus_minus(mean: str, half: float) -> str:
    """A printed mean ± a number, which has the exponent and the decimals of the mean. It has more
    decimals if it would be printed as 0 otherwise.

    >>> plus_minus("0.0805", 0.01234), plus_minus("2.00e-1", 0.0104), plus_minus("0.25", 0.0002)
    ('0.0805 ± 0.0123', '2.00e-1 ± 0.10e-1', '0.25 ± 0.0002')
    """
    mantissa, e, exponent = mean.partition("e")
    size, decimals = half / 10.0 ** int(exponent or 0), len(mantissa.partition(".")[2])
    printed = f"{size:.{decimals}f}"
    if size > 0 and float(printed) == 0:
        printed = f"{size:.{decimals - floor(log10(size * 10**decimals))}f}"
    return f"{mean} ± {printed}{e}{exponent}"


def duration(seconds: float) -> str:
    """A duration as text in seconds, minutes or hours.

    >>> duration(754)
    '12 min 34 s'
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def points(n: int, on: int | Domain = 1) -> str:
    """Text with the number of grid points along each axis.

    Args:
        n: Number of points along each axis, or along the first axis if `on` is a domain.
        on: Number of axes of the grid, or the domain that the grid covers.

    >>> from pdegen.domains import Box
    >>> points(8192), points(85, 2), points(8, Box.cell(32, 16)), points(11, Box.nodal(101, 31))
    ('8,192', '85 x 85', '8 x 4', '11 x 4')
    """
    if isinstance(on, int):
        return " x ".join([f"{n:,}"] * on)
    ends = [kind == "nodal" for kind in on.kinds]  # points at both ends of an axis
    ratio = (n - ends[0]) / (on.shape[0] - ends[0])  # of the numbers of spacings
    counts = (round((size - end) * ratio) + end for size, end in zip(on.shape, ends, strict=True))
    return " x ".join(f"{count:,}" for count in counts)


def trained_points(numbers: Sequence[int], on: int | Domain = 1) -> str:
    """Text with the grid points along each axis of the training batches; see `points`.

    >>> trained_points([43, 85], 2)
    '43 x 43 or 85 x 85'
    """
    return " or ".join(points(n, on) for n in numbers)


def listed(names: str | Sequence[str]) -> str:
    """Names of one or several variables, separated by commas.

    >>> listed("a"), listed(["x", "y"])
    ('a', 'x, y')
    """
    return names if isinstance(names, str) else ", ".join(names)


def settings(values: Mapping[str, object]) -> str:
    """Settings as text, each as name and value.

    >>> settings({"epochs": 8, "loss": {"name": "h1", "gamma": 0.1}})
    'epochs 8, loss h1 (gamma 0.1)'
    """
    return ", ".join(f"{key.replace('_', ' ')} {in_words(v)}" for key, v in values.items())


def in_words(value: object) -> str:
    """A value of a declaration as text. For a mapping, the text is the value of its tag, such as
    its name, followed by its other settings."""
    if isinstance(value, dict):
        tags = [value[tag] for tag in TAGS if tag in value]
        rest = settings({k: v for k, v in value.items() if k not in TAGS})
        return " ".join([*tags, f"({rest})"] if rest else tags)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        if len(value) > 4:
            return f"{in_words(value[0])} … {in_words(value[-1])} ({len(value)} values)"
        return " ".join(map(in_words, value))
    return str(value)
