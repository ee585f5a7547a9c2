"""Slides below a static picture, each of which shows one sample or one time. `report.js` shows one
slide at a time. Without a script and on paper, only the picture is shown."""

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

MOST = 24  # slides per picture
BYTES = 1_500_000  # of the slides of a picture; larger slides are fewer
_DPI = 115


@dataclass(frozen=True)
class Slide:
    """An image with a short label and an alternative text."""

    image: Image.Image
    label: str
    alt: str


def with_slides(
    picture: Picture, slides: Sequence[Slide], word: str, start: int = 0, moving: int = 0
) -> Picture:
    """Append slides to a picture. If their files exceed `BYTES`, only every n-th slide is used.

    Args:
        word: Quantity that differs from slide to slide, "sample" or "time".
        start: Position of the slide that is shown first.
        moving: Milliseconds per slide of an animation; 0 for no animation.
    """
    files = [_webp(slide.image) for slide in slides]
    every = 1
    while sum(map(len, files[::every])) > BYTES:
        every += 1
    images = "".join(
        f'<img src="data:image/webp;base64,{b64encode(file).decode()}" width="{slide.image.width}" '
        f'height="{slide.image.height}" alt="{escape(slide.alt)}" '
        f'data-label="{escape(slide.label)}" hidden>'
        for slide, file in list(zip(slides, files, strict=True))[::every]
    )
    plays = f' data-moving="{moving * every}"' if moving else ""
    return replace(picture, live=(
        f'{picture.live}<div class="live" data-word="{escape(word)}" '
        f'data-start="{start // every + 1}"{plays} hidden>{images}</div>'
    ))  # fmt: skip


def by_error(errors: np.ndarray, most: int = MOST) -> list[int]:
    """Positions of at most `most` samples, sorted by error and evenly spaced in rank. The smallest,
    the median (the better of two) and the largest error are included.

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
    """Images of figures. All figures must have the same number of axes, and get the layout of the
    first."""
    images, first = list[Image.Image](), list[Axes]()
    for figure in figures:
        if first:
            figure.set_layout_engine("none")
            for axes, like in zip(figure.axes, first, strict=True):
                axes.set_position(like.get_position(original=True))
        else:  # room for longer tick labels of later figures
            figure.set_layout_engine("constrained", rect=(0.01, 0, 0.96, 1))
        figure.set_dpi(_DPI)
        canvas = FigureCanvasAgg(figure)  # saving would draw the figure twice
        canvas.draw()
        first = first or figure.axes
        images.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    return images


def _webp(image: Image.Image) -> bytes:
    """An image as a lossless WebP file."""
    data = io.BytesIO()
    image.convert("RGB").save(data, "WEBP", lossless=True, quality=50, method=3)
    return data.getvalue()


def sample_slides(
    errors: np.ndarray, numbers: Sequence[int], draw: Callable[[int], Figure], shown: str
) -> tuple[list[Slide], int]:
    """Slides of samples sorted by error, and the position of the median sample among the slides.

    Args:
        numbers: Numbers of the samples in their store.
        shown: Description of the panels, which begins the alternative text of each slide.
    """
    order = rising(errors)
    slides, places = [], by_error(errors)
    for i, image in zip(places, rendered(map(draw, places)), strict=True):
        label = (
            f"number {numbers[i]} in the store, error {scientific(float(errors[i]))}, "
            f"rank {order.index(i) + 1} of {len(order)} from the smallest error"
        )
        slides.append(Slide(image, label, f"{shown}: {label}"))
    return slides, places.index(order[(len(order) - 1) // 2])
