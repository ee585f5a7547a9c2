"""The card and the Croissant metadata, whole, of descriptions that are written here."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pdegen.store.card import CARD, CONTEXT, CROISSANT, card, description, documents
from pdegen.store.format import Labels, parse

FINGERPRINT, CONTENT = "f" * 64, "0123456789abcdef" * 4
ATTRIBUTES = {
    "fingerprint": FINGERPRINT,
    "content": CONTENT,
    "provenance": {"pdegen": "3.1_4"},
    "statistics": {
        "a": {"mean": 1.23456789, "std": 0.5},
        "u": {"mean": -2.0, "std": 12345678.0},
        "error": {"mean": 3e-8, "std": 4e-9},
    },
}
INPUTS = (
    "wave numbers up to 31 on 32 points: the label belongs to the function, not to its sampled "
    "values; for the interpolant of the stored input it would differ by up to 4.0e-02 in relative "
    "L2 (3 samples)"
)
CARD_OF_A_RECIPE = r"""# Burgers: u(0) -\> u at t = 1/2π, ν = 0.1/2π, on 32 points

| | |
|---|---|
| equation | u\_t + u u\_x = viscosity u\_xx, x on the circle of length 1 |
| parameters | resolution 32, viscosity 0.015915494309189534, times \[0.15915494309189535\] |
| initial | law periodic-gaussian, sigma 25.0, tau 5.0, alpha 2.0, modes 31 |
| solver | method cole-hopf, resolution 64, largest\_error 1e-07 |
| samples | 12 |
| made | by pdegen 3.1\_4 on cuda\_0: solved in float64, rounded once; dimensionless |
| label error | up to 3.00e-02 in relative L2, from a finer\_grid |
| inputs | INPUTS |
| licence | CC BY 4.0, <https://creativecommons.org/licenses/by/4.0/> |
| fingerprint | `FINGERPRINT`: SHA-256 of what it was made from |
| content | `CONTENT`: SHA-256 of the data |

## Arrays

| array | dimensions | shape | type | meaning | units |
|---|---|---|---|---|---|
| `a` | sample, x | 12 x 32 | float32 | initial value u(x, 0) | 1 |
| `u` | sample, x | 12 x 32 | float32 | solution u(x, t) | 1 |
| `error` | sample | 12 | float64 | estimate of the relative L2 error of u, as it is stored | 1 |
| `sample` | sample | 12 | int64 | number of the sample |  |
| `time` | none | 1 | float64 | time | 1 |
| `x` | x | 32 | float64 | position on the circle of length 1 | 1 |
| `channel` | channel | 2 | string | names of the channels: rho\_1, m | |

## Splits

- train: samples 0 to 6
- validation: samples 8 to 9
- test: samples 10 to 11
- in no split, for they could not be computed: samples 3, 7

Over the training split:

- `a`: mean 1.23457, standard deviation 0.5
- `u`: mean -2, standard deviation 1.23457e+07
- `error`: mean 3e-08, standard deviation 4e-09

## Use

This folder is a Zarr v3 group. With xarray:

```python
import xarray as xr

dataset = xr.open_zarr("PATH OR URL OF THIS FOLDER")
print(dataset["a"].sel(sample=0))
```

With pdegen:

```sh
pdegen info PATH
pdegen plot PATH --out picture.png
pdegen export PATH --format npy --out FOLDER
```

## Checks

`records/` and `seal.json` hold the SHA-256 of all objects. `pdegen verify PATH` checks:

- every byte against them, and that all values are finite;
- that the statistics above follow from the values;
- that inputs follow the declared law, and solutions what the equation demands;
- with `--deep`, that samples which it computes again have the same values.

## Citation

Whoever has the recipe makes the data again; the digests prove that they are the same.

```bibtex
@misc{pdegen-0123456789ab,
  title = {{The dataset burgers-quick}},
  note = {Made by pdegen 3.1_4 from its recipe;
    fingerprint FINGERPRINT;
    content CONTENT}
}
```

## Origin

"""
for word in ("INPUTS", "FINGERPRINT", "CONTENT"):
    CARD_OF_A_RECIPE = CARD_OF_A_RECIPE.replace(word, globals()[word])


@pytest.fixture(scope="module")
def described(finished):
    """A description of the finished store with other attributes."""
    raw = json.loads((Path(finished.url) / "zarr.json").read_text("utf-8"))

    def changed(**attributes):
        content = {**raw, "attributes": {**raw["attributes"], **ATTRIBUTES, **attributes}}
        return parse(json.dumps(content).encode())

    return changed


@pytest.fixture
def computed(described):
    store = described(
        provenance={"pdegen": "3.1_4", "device": "cuda_0"},
        skipped=[3, 7],
        label_error={"relative_l2": [0.01, 0.03, 0.02], "reference": "a finer_grid"},
        sampled_inputs={"points": 32, "modes": 31, "relative_l2": [0.01, 0.04, 0.02]},
    )
    return replace(store, labels=Labels(("rho_1", "m")))


@pytest.fixture
def derived(described):
    parent = {"recipe": "of_which", "fingerprint": "1" * 64, "content": "2" * 64, "provenance": {}}
    noise = {"variable": "u", "kind": "relative", "deviation": "3" * 64, "levels": [0.0, 0.25]}
    return described(parent=parent, noise=noise)


@pytest.fixture
def foreign(described):
    files = [{"name": "a_1.npy", "sha256": "4" * 64}, {"name": "u.npy", "sha256": "5" * 64}]
    return described(imported={"files": files}, recipe={"name": "my_pairs"})


def facts_of(text):
    return dict(
        line[2:-2].split(" | ", 1) for line in text.partition("\n## ")[0].splitlines()[4:-1]
    )


def section(text, title):
    return text.partition(f"\n## {title}\n\n")[2].partition("\n\n## ")[0]


def test_a_card_has_every_fact_of_a_computed_dataset(computed):
    text = card(computed)
    assert text[: len(CARD_OF_A_RECIPE)] == CARD_OF_A_RECIPE
    origin = {}
    for part in text.removeprefix(CARD_OF_A_RECIPE).strip().split("\n```\n\n"):
        name, _, content = part.partition(":\n\n```json\n")
        origin[name] = json.loads(content.removesuffix("\n```"))
    raw = computed.raw_attributes
    assert origin == {name: raw[name] for name in ("recipe", "provenance")}
    assert text.endswith("\n```\n\n")


def test_a_card_for_an_export_says_how_to_read_it_and_no_checks(computed):
    whole = card(computed)
    start, end = whole.index("## Use"), whole.index("## Citation")
    expected = f"{whole[:start]}read it\nso\n\n{whole[end:]}"
    assert card(computed, ["read it", "so"]) == expected


def test_a_card_of_a_derived_dataset_names_its_parent_and_noise(derived):
    text = card(derived)
    facts = facts_of(text)
    assert facts["noise"] == (
        rf"variable u, kind relative, deviation {'3' * 64}, levels \[0.0, 0.25\]"
    )
    assert facts["made"] == (rf"by pdegen 3.1\_4 from the dataset of\_which, content `{'2' * 64}`")
    assert section(text, "Checks").splitlines()[2:] == [
        "- every byte against them, and that all values are finite;",
        "- that the statistics above follow from the values.",
    ]
    assert f"3.1_4 from the dataset {'2' * 64};\n" in section(text, "Citation")
    heads = [line for line in section(text, "Origin").splitlines() if line[:1].isalpha()]
    assert heads == ["recipe:", "parent:", "noise:", "provenance:"]


def test_a_card_of_imported_files_names_them_and_leaves_licence_and_citation_to_their_source(
    foreign,
):
    text = card(foreign)
    facts = facts_of(text)
    assert "parameters" not in facts
    assert facts["made"] == r"from a\_1.npy, u.npy by pdegen 3.1\_4, in the type of the file"
    assert facts["licence"] == "that of its source"
    assert section(text, "Citation") == (
        "Cite the source of the files; the digests above say which data these are."
    )
    assert section(text, "Checks").endswith("- that the statistics above follow from the values.")
    heads = [line for line in section(text, "Origin").splitlines() if line[:1].isalpha()]
    assert heads == ["recipe:", "imported:", "provenance:"]


def field(name, kind, meaning, rows, shape=None):
    values = {
        "@type": "cr:Field",
        "@id": f"{name}/values",
        "name": f"{name}/values",
        "description": meaning,
        "dataType": kind,
        "source": {
            "fileSet": {"@id": f"objects-of-{name}"},
            "extract": {"fileProperty": "content"},
        },
    }
    if shape is not None:
        values |= {"isArray": True, "arrayShape": shape}
    description = f"{meaning.removesuffix(', unit 1')}; {rows}"
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": description,
        "field": [values],
    }


def test_croissant_describes_every_array_and_split_of_a_computed_dataset(computed):
    written = documents(computed, "9" * 64)
    assert list(written) == [CARD, CROISSANT]
    assert written[CARD].decode() == card(computed)
    found = json.loads(written[CROISSANT])
    names = ["a", "u", "error", "sample", "time", "x", "channel"]
    metadata, *sets = found.pop("distribution")
    assert metadata == {
        "@type": "cr:FileObject",
        "@id": "metadata",
        "name": "metadata",
        "description": "metadata of the Zarr group, with the digest of the data",
        "contentUrl": "zarr.json",
        "encodingFormat": "application/json",
        "sha256": "9" * 64,
    }
    assert sets == [
        {
            "@type": "cr:FileSet",
            "@id": f"objects-of-{name}",
            "name": f"objects-of-{name}",
            "description": f"the Zarr array {name}",
            "encodingFormat": "application/vnd.zarr",
            "includes": "time/c" if name == "time" else f"{name}/c/**",
        }
        for name in names
    ]
    *arrays, splits = found.pop("recordSet")
    each, every = "one for each sample", "of all samples"
    error = "estimate of the relative L2 error of u, as it is stored, unit 1"
    assert arrays == [
        field("a", "cr:Float32", "initial value u(x, 0), unit 1", each, "32"),
        field("u", "cr:Float32", "solution u(x, t), unit 1", each, "32"),
        field("error", "cr:Float64", error, each),
        field("sample", "cr:Int64", "number of the sample", every, "12"),
        field("time", "cr:Float64", "time, unit 1", every),
        field("x", "cr:Float64", "position on the circle of length 1, unit 1", every, "32"),
        field("channel", "sc:Text", "names of the channels", every, "2"),
    ]
    assert splits["data"] == [
        {"splits/name": "train", "splits/first": 0, "splits/end": 7},
        {"splits/name": "validation", "splits/first": 8, "splits/end": 10},
        {"splits/name": "test", "splits/first": 10, "splits/end": 12},
    ]
    kinds = {one["name"]: one["dataType"] for one in splits["field"]}
    assert kinds == {
        "splits/name": "sc:Text",
        "splits/first": "cr:Int64",
        "splits/end": "cr:Int64",
    }
    assert (splits["dataType"], splits["key"]) == ("cr:Split", {"@id": "splits/name"})
    raw = computed.raw_attributes
    assert found == {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": "burgers-quick",
        "description": f"{raw['title']}: {raw['equation']}",
        "license": "https://creativecommons.org/licenses/by/4.0/",
        "citeAs": section(card(computed), "Citation").split("```")[1].removeprefix("bibtex\n")[:-1],
        "version": "1.0.0+0123456789ab",
    }


def test_croissant_claims_no_licence_or_citation_of_imported_files(foreign):
    found = json.loads(documents(foreign, "9" * 64)[CROISSANT])
    assert not {"license", "citeAs"} & found.keys()
    assert found["name"] == "my_pairs"


def test_a_title_that_has_the_equation_is_the_description(described):
    metadata = described(title="it: v_t = 0, on [0, 1]", equation="v_t = 0").metadata
    assert description(metadata) == "it: v_t = 0, on [0, 1]"
    assert description(replace(metadata, equation="w_t = 0")) == "it: v_t = 0, on [0, 1]: w_t = 0"
