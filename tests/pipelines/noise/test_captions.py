"""Published errors of one sample beside those of a study, typed from the captions a second time."""

from pipelines.config.shipped import names
from pipelines.reports.published import CAPTIONS, captions
from pipelines.studies.inversions import Cell
from pipelines.studies.runner import Row

NAME = "darcy-inverse-211-71"
# Cao 2021, C.4: Figure 11 trained and tested alike, Figure 12 trained at one level, tested at other
FIGURE_11 = {"0": "0.016", "0.01": "0.0292", "0.1": "0.0885"}
FIGURE_12 = {
    ("0", "0.01"): "0.194", ("0", "0.015"): "0.416", ("0.01", "0"): "0.0235",
    ("0.01", "0.02"): "0.0754", ("0.01", "0.05"): "0.403", ("0.1", "0.05"): "0.0691",
}  # fmt: skip


def test_the_table_has_the_captions_and_the_errors_of_the_study():
    rows = {
        Cell(0.0): [[Row(errors=[0.01, 0.02, 0.03])], [Row(errors=[0.1, 0.2, 0.3])]],
        Cell(0.1): [[Row(errors=[0.1, 0.1, 0.1])], [Row(errors=[0.1, 0.1, 0.1])]],
    }
    (section,) = captions(NAME, (0.0, 0.01), rows)
    (table,) = section.tables
    found = {(row[1], row[2]): row[3:] for row in table.rows}
    expected = {(v, v): e for v, e in FIGURE_11.items()} | FIGURE_12
    assert {levels: row[0] for levels, row in found.items()} == expected
    assert found["0", "0"][1:] == ("0.02", "0.01 to 0.03", "33 %")
    assert found["0", "0.01"][1:] == ("0.2", "0.1 to 0.3", "33 %")
    assert found["0", "0.015"][1:] == ("", "", "")  # not tested at this level
    assert found["0.01", "0"][1:] == ("", "", "")  # not trained at this level


def test_captions_are_of_shipped_experiments_alone():
    assert CAPTIONS.keys() <= set(names("experiment"))
    assert captions("burgers-quick", (0.0,), {}) == []
