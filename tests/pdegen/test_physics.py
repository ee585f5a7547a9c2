"""The attribute `physics` of a store: what is said is read, and what cannot be is refused."""

import pytest

from pdegen.store.format import Drawing, MetadataError, Physics, SurfaceCurve

WHOLE = Physics(
    boundary={"u": 0.0},
    symmetries=("square",),
    loss_weight="a",
    phases={"a": (3.0, 12.0)},
    sentences={"coefficient": "two phases"},
    drawing={
        "a": Drawing("a", "phases", log=True, falls=2.0),
        "u": Drawing(contours=True, along=SurfaceCurve("−c_p", 1.0, -0.5)),
    },
    near={"x": (-0.5, 1.5)},
)


def test_is_read_as_it_is_written():
    assert Physics.of({"physics": WHOLE.attributes()}) == WHOLE


def test_says_nothing_where_a_store_has_none():
    assert Physics.of({}) == Physics()
    assert Physics().attributes() == {}


def test_reads_what_a_later_version_adds():
    assert Physics.of({"physics": {"boundary": {"u": 1}, "later": 3}}).boundary == {"u": 1.0}


@pytest.mark.parametrize(
    "wrong",
    [
        3,
        {"boundary": [0]},
        {"boundary": {"u": "0"}},
        {"boundary": {"../u": 0.0}},
        {"boundary": {"u": float("inf")}},
        {"symmetries": "square"},
        {"symmetries": [1]},
        {"loss_weight": 2},
        {"phases": {"a": [3.0]}},
        {"phases": {"a": [3.0, 3.0]}},
        {"sentences": {"solver": 5}},
        {"drawing": {"a": "red"}},
        {"drawing": {"a": {"colours": "red"}}},
        {"drawing": {"a": {"symbol": 1}}},
        {"drawing": {"a": {"log": 1}}},
        {"near": {"x": [1.5, -0.5]}},
        {"near": {"sample": [0.0, 1.0]}},
        {"drawing": {"a": {"along": {"symbol": "c", "scale": 0.0}}}},
        {"drawing": {"a": {"along": {"symbol": ""}}}},
        {"drawing": {"a": {"falls": "fast"}}},
    ],
)
def test_refuses_what_cannot_be(wrong):
    with pytest.raises(MetadataError, match=r"physics|a name"):
        Physics.of({"physics": wrong})
