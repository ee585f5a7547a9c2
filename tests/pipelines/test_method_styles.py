"""A method has one colour in all reports, and methods of one chart have different ones."""

from pipelines.reports.figures import style_of, styles
from pipelines.studies.inversions import CONSTANT, Cell


def test_a_known_operator_has_one_style_whatever_stands_beside_it():
    assert styles(["GT", "FNO"])["GT"] == styles(["mine", "LT", "GT"])["GT"]


def test_names_of_one_chart_have_different_styles():
    names = ["FNO", "GT", *(f"variant {k}" for k in range(38))]
    looks = styles(names).values()
    assert len({(look.colour, look.dashes, look.marker) for look in looks}) == len(names)
    few = styles(["one", "FNO", "two", "GT", "three"]).values()
    assert len({look.colour for look in few}) == 5


def test_a_level_has_one_colour_in_all_noise_studies_and_more_noise_a_darker_one():
    def brightness(level: float, kind: str) -> int:
        colour = style_of(Cell(level), kind).colour
        return sum(int(colour[k : k + 2], 16) for k in (1, 3, 5))

    levels = [brightness(level, "ensemble") for level in (0.0, 0.01, 0.05, 0.1, 0.5)]
    assert levels == sorted(levels, reverse=True)
    assert len({*levels}) == 5
    assert brightness(10.0, "snr") < brightness(30.0, "snr")  # decibels


def test_a_corrected_model_has_the_colour_of_its_model():
    model = style_of(Cell(0.1), "ensemble")
    corrected = style_of(Cell(0.1, corrected=True), "ensemble")
    assert (corrected.colour, corrected.dashes) == (model.colour, "--")


def test_classical_methods_and_the_constant_have_colours_of_their_own():
    names = ("maximum a posteriori", "total variation", "Tikhonov", "level set", CONSTANT)
    colours = {style_of(Cell(name), "ensemble").colour for name in names}
    assert len(colours | {style_of(Cell(0.1), "ensemble").colour}) == 6
