"""Slides of samples or times beside the static charts of a page: `report.js` shows one of them;
without a script, and on paper, the chart stands alone."""

import io
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from operators.norms import rising
from pipelines.reports.document import Picture
from pipelines.reports.figures import styled
from pipelines.reports.wording import scientific

MOST = 24  # slides of one picture
BYTES = 1_500_000  # of its images in the page; fewer slides where they would have more
_DPI = 90


@dataclass(frozen=True)
class Slide:
    """One image, what it is in few words, and what it shows for readers who do not see it."""

    image: Image.Image
    label: str
    alt: str


def with_slides(
    picture: Picture, slides: Sequence[Slide], word: str, start: int = 0, moving: int = 0
) -> Picture:
    """A picture with slides beneath it, as many of them as `BYTES` allow, evenly chosen.

    Args:
        start: Place of the one that is seen first.
        moving: Milliseconds of each where they play; 0 where they do not.
    """
    files = [_webp(one.image) for one in slides]
    every = 1
    while sum(map(len, files[::every])) > BYTES:
        every += 1
    images = "".join(
        f'<img src="data:image/webp;base64,{b64encode(file).decode()}" width="{one.image.width}" '
        f'height="{one.image.height}" alt="{escape(one.alt)}" data-label="{escape(one.label)}" '
        "hidden>"
        for one, file in list(zip(slides, files, strict=True))[::every]
    )
    plays = f' data-moving="{moving * every}"' if moving else ""
    return replace(picture, live=(
        f'{picture.live}<div class="live" data-word="{escape(word)}" '
        f'data-start="{start // every + 1}"{plays} hidden>{images}</div>'
    ))  # fmt: skip


def by_error(errors: np.ndarray, most: int = MOST) -> list[int]:
    """Places of samples from the smallest to the largest error; of many some, evenly chosen, with
    the first, the median (of two the better) and the last.

    >>> by_error(np.array([0.3, 0.1, 0.2, 0.5, 0.4]), 3)
    [1, 0, 3]
    """
    order = rising(errors)
    n = len(order)
    ranks = {round(k * (n - 1) / max(1, min(most, n) - 1)) for k in range(min(most, n))}
    middle = (n - 1) // 2
    if n > most:
        ranks.remove(min(ranks - {0, n - 1}, key=lambda rank: abs(rank - middle)))
    return [order[rank] for rank in sorted(ranks | {middle})]


@styled
def rendered(figures: Iterable[Figure]) -> list[Image.Image]:
    """Figures of the same axes as images; where the axes lie is found for the first one alone."""
    images, first = list[Image.Image](), list[Axes]()
    for figure in figures:
        if first:
            figure.set_layout_engine("none")
            for axes, like in zip(figure.axes, first, strict=True):
                axes.set_position(like.get_position(original=True))
        else:  # numbers at the scales of later ones may have more digits
            figure.set_layout_engine("constrained", rect=(0.01, 0, 0.96, 1))
        figure.set_dpi(_DPI)
        canvas = FigureCanvasAgg(figure)  # saving would draw twice
        canvas.draw()
        first = first or figure.axes
        images.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    return images


def _webp(image: Image.Image) -> bytes:
    """An image as the smallest file that keeps every pixel."""
    data = io.BytesIO()
    image.convert("RGB").save(data, "WEBP", lossless=True, quality=50, method=3)
    return data.getvalue()


def sample_slides(
    errors: np.ndarray, numbers: Sequence[int], draw: Callable[[int], Figure], said: str
) -> tuple[list[Slide], int]:
    """A slide for each of some samples by the rank of their errors, and the place of the median."""
    order = rising(errors)
    slides, places = [], by_error(errors)
    for i, image in zip(places, rendered(map(draw, places)), strict=True):
        label = (
            f"number {numbers[i]} in the store, error {scientific(float(errors[i]))}, "
            f"rank {order.index(i) + 1} of {len(order)} from the smallest error"
        )
        slides.append(Slide(image, label, f"{said}: {label}"))
    return slides, places.index(order[(len(order) - 1) // 2])
