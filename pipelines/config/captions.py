"""Published errors of single samples, by experiment: captions of figures.

They stand in the report of a noise study of that experiment, because their models were trained at
one noise level and tested at another.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caption:
    """A relative L² error in the caption of a figure.

    Args:
        figure: The panel of the figure.
        trained, tested: Noise levels of the training samples and of the sample that is shown.
        error: The error of this sample.
    """

    figure: str
    trained: float
    tested: float
    error: float


SOURCE = "Cao 2021, captions of Figures 11 and 12: one test sample, that of Figure 10"
CAPTIONS: dict[str, tuple[Caption, ...]] = {
    "darcy-inverse-211-71": (
        Caption("11 (d)", 0.0, 0.0, 0.0160),
        Caption("11 (e)", 0.01, 0.01, 0.0292),
        Caption("11 (f)", 0.1, 0.1, 0.0885),
        Caption("12 (a)", 0.0, 0.01, 0.194),
        Caption("12 (b)", 0.0, 0.015, 0.416),
        Caption("12 (c)", 0.01, 0.0, 0.0235),
        Caption("12 (d)", 0.01, 0.02, 0.0754),
        Caption("12 (e)", 0.01, 0.05, 0.403),
        Caption("12 (f)", 0.1, 0.05, 0.0691),
    )
}
