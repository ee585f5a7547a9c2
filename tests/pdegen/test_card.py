"""The card and the Croissant metadata say what is in a store, whatever it was made from."""

import json
import re
from pathlib import Path

import mlcroissant
import pytest

from pdegen.formats.exporting import export
from pdegen.generation.derived import add_noise, at_levels
from pdegen.generation.generate import generate
from pdegen.store.card import CARD, CROISSANT, escaped
from pdegen.store.format import sha256
from pdegen.store.reading import Store
from tests.stores import objects_of


@pytest.fixture(scope="module")
def noisy(finished, tmp_path_factory):
    levels = at_levels({"kind": "relative", "seed": 0}, [0.0, 0.1])
    return add_noise(finished.url, "u", levels, str(tmp_path_factory.mktemp("n") / "noisy.zarr"))


@pytest.fixture(params=["finished", "noisy", "imported"])
def store(request) -> Store:
    return request.getfixturevalue(request.param)


def test_the_card_says_what_is_in_the_store(store):
    card, attributes = (Path(store.url) / CARD).read_text("utf-8"), store.raw_attributes
    assert card.startswith(f"# {escaped(attributes['title'])}\n")
    equation = escaped(attributes["equation"])
    for word in (equation, attributes["content"], attributes["fingerprint"]):
        assert word in card
    for name in store.arrays:
        assert f"| `{name}` |" in card
    assert "- train: samples 0 to 6" in card
    assert f"standard deviation {attributes['statistics']['u']['std']:.6g}" in card
    assert str(Path(store.url).parent) not in card


def test_the_card_has_what_each_array_says_of_itself(finished):
    rows = {}
    for line in (Path(finished.url) / CARD).read_text("utf-8").splitlines():
        if line.startswith("| `"):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name.strip("`")] = cells
    assert rows.keys() == finished.arrays.keys()
    for name, array in finished.arrays.items():
        dims, shape = ", ".join(array.dims) or "none", " x ".join(map(str, array.shape)) or "1"
        said = [array.dtype.name, array.metadata.long_name, array.metadata.units]
        assert rows[name] == [dims, shape, *said]
    assert rows["u"][-1] == rows["x"][-1] == "1"


def test_the_card_says_how_it_was_made(finished, noisy, imported):
    made, derived, foreign = (
        (Path(store.url) / CARD).read_text("utf-8") for store in (finished, noisy, imported)
    )
    law = "| initial | law periodic-gaussian, sigma 25.0, tau 5.0, alpha 2.0, modes 31 |"
    for card in (made, derived):
        assert law in card
        assert "| solver | method cole-hopf, resolution 64, " in card
        assert "| licence | CC BY 4.0" in card
    assert "| noise |" not in made
    assert "| noise | variable u, kind relative, seed 0, levels \\[0.0, 0.1\\]," in derived
    assert (
        f"from the dataset burgers-quick, content `{finished.raw_attributes['content']}`" in derived
    )
    assert "| made | from pairs.npy by pdegen" in foreign
    assert "| licence | that of its source |" in foreign
    assert ["--deep" in card for card in (made, derived, foreign)] == [True, False, False]


def test_the_card_and_croissant_say_how_to_cite(finished, noisy, imported):
    for store in (finished, noisy):
        card, metadata = ((Path(store.url) / key).read_text("utf-8") for key in (CARD, CROISSANT))
        (entry,) = re.findall(r"^```bibtex\n(.*?)\n```$", card, re.MULTILINE | re.DOTALL)
        assert entry == json.loads(metadata)["citeAs"]
        assert entry.startswith(f"@misc{{pdegen-{store.raw_attributes['content'][:12]},\n")
        assert entry.count("{") == entry.count("}")
        for name in ("content", "fingerprint"):
            assert f"{name} {store.raw_attributes[name]}" in entry
    assert f"from the dataset {finished.raw_attributes['content']};" in entry
    foreign = (Path(imported.url) / CARD).read_text("utf-8")
    assert "Cite the source of the files" in foreign
    assert "```bibtex" not in foreign


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib
def test_croissant_is_valid_and_names_arrays_and_splits(store):
    path = Path(store.url) / CROISSANT
    dataset = mlcroissant.Dataset(jsonld=str(path))
    assert not dataset.metadata.ctx.issues.errors
    found = {record["splits/name"]: (record["splits/first"], record["splits/end"])
             for record in dataset.records("splits")}  # fmt: skip
    assert found == {name: tuple(ends) for name, ends in store.raw_attributes["splits"].items()}
    content = json.loads(path.read_text("utf-8"))
    fields = {record["@id"]: record["field"][0] for record in content["recordSet"]}
    sets = {one["@id"]: one for one in content["distribution"]}
    objects = objects_of(store)
    for name, array in store.arrays.items():
        shape = array.shape[1:] if name in store.variables else array.shape
        assert fields[name].get("arrayShape", "") == ",".join(map(str, shape))
        assert fields[name]["dataType"].lower().endswith(array.dtype.name)
        pattern = sets[fields[name]["source"]["fileSet"]["@id"]]["includes"]
        assert any(key.startswith(pattern.removesuffix("**")) for key in objects)
    assert ("license" in content) == (store.command != "import")
    metadata = sets["metadata"]
    assert metadata["sha256"] == sha256((Path(store.url) / "zarr.json").read_bytes())


def test_words_of_others_stay_in_their_cells(small, tmp_path):
    summary = "a | b\n# c ``` <img src=x> [u](https://example.org) \x1b[2J\u202e *d* &lt;"
    hostile = small.model_copy(update={"summary": summary})
    store = generate(hostile, str(tmp_path / "h.zarr"))
    card = (Path(store.url) / CARD).read_text("utf-8")
    assert card.startswith(
        r"# a \| b \# c \`\`\` \<img src=x\> \[u\](https://example.org) \\x1b\[2J\\u202e "
        r"\*d\* \&lt;"
    )
    folder = export(store.url, "huggingface", tmp_path / "h")
    for text in (card, (folder / CARD).read_text("utf-8").partition("---\n\n")[2]):
        plain = re.sub(r"```.*?```", "", text, flags=re.S)  # and blocks show what they hold
        assert "\n# c" not in text
        assert not re.search(r"(?<!\\)<img|[^\\]\]\(|&lt", plain.replace(r"\&lt", ""))
        assert all(letter.isprintable() or letter == "\n" for letter in text)
