import json
from pathlib import Path

import mlcroissant
import pytest

from pdegen.card import CARD, CROISSANT
from pdegen.derived import add_noise, at_levels
from pdegen.generate import generate
from pdegen.record import sha256
from tests.stores import objects_of


@pytest.fixture(scope="module")
def noisy(finished, tmp_path_factory):
    levels = at_levels({"kind": "relative", "seed": 0}, [0.0, 0.1])
    return add_noise(finished.url, "u", levels, str(tmp_path_factory.mktemp("n") / "noisy.zarr"))


@pytest.fixture(params=["recipe", "noise"])
def store(request, finished, noisy):
    return finished if request.param == "recipe" else noisy


def test_the_card_says_what_is_in_the_store(store):
    card, attributes = (Path(store.url) / CARD).read_text("utf-8"), store.attributes
    assert card.startswith(f"# {attributes['title']}\n")
    for word in (attributes["equation"], attributes["content"], attributes["fingerprint"]):
        assert word in card
    for name in store.arrays:
        assert f"| `{name}` |" in card
    assert "- train: samples 0 to 6" in card
    assert f"standard deviation {attributes['statistics']['u']['std']:.6g}" in card
    assert ("noise:" in card) == store.derived


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib
def test_croissant_is_valid_and_names_arrays_and_splits(store):
    path = Path(store.url) / CROISSANT
    dataset = mlcroissant.Dataset(jsonld=str(path))
    assert not dataset.metadata.ctx.issues.errors
    found = {record["splits/name"]: (record["splits/first"], record["splits/end"])
             for record in dataset.records("splits")}  # fmt: skip
    assert found == {name: tuple(ends) for name, ends in store.attributes["splits"].items()}
    content = json.loads(path.read_text("utf-8"))
    fields = {record["@id"]: record["field"][0] for record in content["recordSet"]}
    for name in store.variables:
        shape = store.arrays[name]["shape"][1:]
        assert fields[name].get("arrayShape", "") == ",".join(map(str, shape))
    (metadata, *_) = content["distribution"]
    assert metadata["sha256"] == sha256((Path(store.url) / "zarr.json").read_bytes())


def test_two_makings_have_the_same_words(finished, small, tmp_path):
    again = objects_of(generate(small, str(tmp_path / "again.zarr")))
    for key in (CARD, CROISSANT):
        assert again[key] == objects_of(finished)[key]


def test_words_of_others_stay_in_their_cells(small, tmp_path):
    hostile = small.model_copy(update={"summary": "a | b\n# c ```"})
    card = (Path(generate(hostile, str(tmp_path / "h.zarr")).url) / CARD).read_text("utf-8")
    assert card.startswith("# a \\| b # c ```\n")
    assert "\n# c" not in card
