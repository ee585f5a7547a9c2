"""Where the numbers of an operator's settings arrive, against a table.

All numbers of an operator are chosen different from each other and from 0 and 1. So a number that a
module keeps says from which setting it is: two settings that are exchanged change the table. The
number of parameters does the same for the sizes of layers.

    python -m tests.operators.test_places        # writes the table anew
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from operators.base import Operator
from pipelines.config.declared import parse_model
from tests.operators.cases import CASES, DIMS

TABLE = Path(__file__).parent / "places.toml"
IN_CHANNELS, OUT_CHANNELS = 2, 3
# sizes of layers, of which the number of parameters tells
SIZES = {"in_features", "out_features", "in_channels", "out_channels", "normalized_shape",
         "num_features", "embedding_dim", "num_embeddings"}  # fmt: skip
Settings = dict[str, Any]
# settings beside which the others can have numbers of their own
BESIDE: dict[str, Settings] = {
    "fno": {"padding": 0.0},
    "deeponet": {"branch": "convolution"},
    "galerkin-transformer-2d galerkin": {"decoder": "pointwise"},
    "ht-net": {"stride": 2, "patch": 6},
    "upt": {"encoder_width": 32, "width": 36, "decoder_width": 40, "encoder_heads": 4, "heads": 6,
            "decoder_heads": 5},
}  # fmt: skip


def numbers(settings: Settings) -> Iterator[tuple[str, float]]:
    """Each number among the settings; an element of a list is named "setting.index"."""
    for name, value in settings.items():
        parts = enumerate(value) if isinstance(value, list) else [("", value)]
        for key, number in parts:
            if isinstance(number, int | float) and not isinstance(number, bool):
                yield f"{name}.{key}".rstrip("."), number


def replaced(settings: Settings, place: str, number: float) -> Settings:
    name, _, index = place.partition(".")
    if not index:
        return settings | {name: number}
    values = list(settings[name])
    values[int(index)] = number
    return settings | {name: values}


def built(label: str, settings: Settings) -> Operator:
    torch.manual_seed(0)
    dim = max(dim for dim in DIMS[label] if dim < 3)
    return parse_model(settings).build(IN_CHANNELS, OUT_CHANNELS, dim)


def attributes(module: nn.Module) -> Iterator[tuple[str, object]]:
    """The attributes that a module keeps, those of dataclasses and partial functions included."""
    for name, value in vars(module).items():
        if name.startswith("_") or name == "training" or name in SIZES:
            continue
        yield name, value
        for part, content in getattr(value, "keywords", {}).items():  # of a partial function
            yield f"{name}.{part}", content


def places(label: str, settings: Settings) -> tuple[int, dict[str, list[str]]]:
    """Number of parameters, and for each setting the attributes that have its number."""
    model = built(label, settings)
    found: dict[str, Counter[str]] = {name: Counter() for name, _ in numbers(settings)}
    shared = Counter(number for _, number in numbers(settings))
    names = {number: name for name, number in numbers(settings) if shared[number] == 1}
    for path, module in model.named_modules():
        for name, value in attributes(module):
            for part in value if isinstance(value, tuple | list) else [value]:
                if type(part) in (int, float) and part in names and part not in (0, 1):
                    place = re.sub(r"\d+", "*", f"{path}.{name}".lstrip("."))
                    found[names[part]][place] += 1
    listed = {
        name: [f"{place} x {count}" for place, count in sorted(at.items())]
        for name, at in found.items()
    }
    return sum(p.numel() for p in model.parameters()), listed


def starts(label: str, settings: Settings) -> dict[str, torch.Tensor]:
    """First values of the weights and buffers, layers taken together."""
    state: dict[str, list[torch.Tensor]] = {}
    for name, values in built(label, settings).state_dict().items():
        state.setdefault(re.sub(r"\d+", "*", name), []).append(values.double().flatten())
    return {name: torch.cat(parts) for name, parts in state.items()}


def size(values: torch.Tensor) -> float:
    """Root mean square."""
    return float(values.square().mean().sqrt())


def scaled(label: str, settings: Settings, found: dict[str, list[str]]) -> dict[str, float]:
    """Sizes at the start of those weights that depend on a real number that no module keeps."""
    own, sizes = starts(label, settings), dict[str, float]()
    for name, number in numbers(settings):
        if isinstance(number, float) and not found[name]:
            other = starts(label, replaced(settings, name, 1.5 * number))
            sizes |= {w: size(v) for w, v in own.items() if not torch.equal(v, other[w])}
    return sizes


def table() -> dict[str, Any]:
    return {"row": [], **tomllib.loads(TABLE.read_text("utf-8"))}


def described(label: str, beside: Settings) -> Settings:
    """All settings of a case."""
    case = CASES[label]
    return parse_model({"name": case.name, **case.settings, **beside}).model_dump(mode="json")


OWN = [label for label in CASES if not CASES[label].foreign]


@pytest.mark.parametrize("row", table()["row"], ids=lambda row: row["case"])
def test_numbers_arrive_in_the_modules_of_the_table(row):
    label = row["case"]
    settings = described(label, row["beside"])
    for name, (number, *_) in row["numbers"].items():
        settings = replaced(settings, name, number)
    assert places(label, settings) == (
        row["parameters"], {name: at for name, (_, *at) in row["numbers"].items()},
    )  # fmt: skip
    own = starts(label, settings) if row["starts"] else {}
    for weight, expected in row["starts"].items():
        # four deviations: another version of PyTorch draws other numbers
        chance = 4 / own[weight].numel() ** 0.5
        assert size(own[weight]) == pytest.approx(expected, rel=chance), weight


def test_each_number_of_each_operator_is_in_the_table_apart_from_the_others():
    apart = set[tuple[str, str]]()
    for row in table()["row"]:
        values = Counter(number for number, *_ in row["numbers"].values())
        apart |= {
            (CASES[row["case"]].name, name)
            for name, (number, *_) in row["numbers"].items()
            if values[number] == 1 and number not in (0, 1)
        }
    settings = {
        (CASES[label].name, name) for label in OWN for name, _ in numbers(described(label, {}))
    }
    assert settings - apart == set()


def chosen(label: str, beside: Settings) -> Settings:
    """Settings of a case with numbers that differ, where the operator has them."""
    settings = described(label, beside)
    used = {0, 1, *(number for name, number in numbers(settings) if name in beside)}
    for k, (name, own) in enumerate(numbers(settings)):
        if name in beside:
            continue
        near: list[float] = [*range(5, 40), *range(2, 5), *range(40, 200, 4)]
        if isinstance(own, float):
            near = [
                round(f, 4) for f in (0.11 + 0.017 * k, 1.5 + 0.1 * k, 20.5 + k, 0.8 + 0.01 * k)
            ]
        for number in [own, *near]:
            if number in used:
                continue
            try:
                built(label, replaced(settings, name, number))
            except ValueError:  # it does not fit the other settings
                continue
            settings = replaced(settings, name, number)
            used.add(number)
            break
    return settings


def written() -> str:
    lines = ["# Where the numbers of settings arrive: [number, attributes ...] (test_places.py)."]
    known = set[tuple[str, str]]()
    for label, beside in [*((label, {}) for label in OWN), *BESIDE.items()]:
        settings = chosen(label, beside)
        parameters, found = places(label, settings)
        shared = Counter(number for _, number in numbers(settings))
        fresh = {
            (CASES[label].name, f"{name} {place}".rpartition(" x ")[0])
            for name, number in numbers(settings)
            for place in (*found[name], *([" x "] if shared[number] == 1 else []))
        }
        if fresh <= known:  # as in another case
            continue
        known |= fresh
        words = ", ".join(f"{name} = {json.dumps(value)}" for name, value in beside.items())
        lines += ["", "[[row]]", f'case = "{label}"', f"beside = {{ {words} }}"]
        lines += [f"parameters = {parameters}", "[row.numbers]"]
        lines += [
            f'"{name}" = {json.dumps([number, *found[name]])}' for name, number in numbers(settings)
        ]
        lines += ["[row.starts]"]
        sizes = scaled(label, settings, found)
        lines += [f'"{weight}" = {value:.4g}' for weight, value in sizes.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(written(), "utf-8")
