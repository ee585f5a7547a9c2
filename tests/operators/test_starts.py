"""The scale at which every weight of every operator starts, against a table.

Two operators of one shape that start differently compute the same maps of the same weights; so
comparisons with released code, which are made with equal weights, do not see the start.

    python -m tests.operators.test_starts        # writes the table anew

A new operator is compared once the table has it.
"""

import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
import torch

from pipelines.config.declared import MODELS, parse_model
from tests.operators.cases import CASES, DIMS, FIRST, PLAIN

TABLE = Path(__file__).parent / "starts.toml"
KNOWN = tomllib.loads(TABLE.read_text("utf-8"))
SEEDS = range(4)
BUILT = sorted(
    {(CASES[label].name, label, dim) for label, dim in FIRST if not CASES[label].foreign}
)
RECORDED = [place for place in BUILT if place[0] in KNOWN]
# with other layers, of which the table has the weights that start otherwise
OTHERS = [
    (CASES[label].name, label, DIMS[label][-1])
    for label in sorted(CASES)
    if label not in PLAIN.values() and not CASES[label].foreign
]


@cache
def starts(label, dim):
    """Number, mean and root mean square of the first values of weights, layers taken together."""
    values = defaultdict(list)
    for seed in SEEDS:
        torch.manual_seed(seed)
        case = CASES[label]
        model = parse_model({"name": case.name, **case.settings}).build(1, 1, dim)
        for name, parameter in model.named_parameters():
            values[re.sub(r"\d+", "*", name)].append(parameter.detach().flatten())
    return {
        name: (v.numel(), float(v.mean()), float(v.square().mean().sqrt()))
        for name, v in ((name, torch.cat(parts).double()) for name, parts in values.items())
    }


@pytest.mark.parametrize(("name", "label", "dim"), RECORDED)
def test_weights_start_at_the_scale_of_the_table(name, label, dim):
    agree(starts(label, dim), KNOWN[name])


@pytest.mark.parametrize(("name", "label", "dim"), [one for one in OTHERS if one[0] in KNOWN])
def test_weights_of_other_layers_start_at_the_scale_of_the_table(name, label, dim):
    found, expected = starts(label, dim), KNOWN.get(f"{label}, {dim}d", {})
    assert found.keys() <= KNOWN[name].keys() | expected.keys()
    agree({weight: found[weight] for weight in expected}, expected)


def agree(found, expected):
    assert found.keys() == expected.keys()
    for weight, (count, mean, size) in found.items():
        # what numbers that are drawn differ by, four deviations: another version of PyTorch draws
        # others; none where they are constant
        chance = 4 / count**0.5 if abs(size - abs(mean)) > 1e-6 * size else 1e-5
        assert size == pytest.approx(expected[weight][1], rel=chance, abs=1e-12), weight
        assert mean == pytest.approx(expected[weight][0], abs=chance * size + 1e-12), weight


def test_every_table_is_of_an_operator():
    labels = {f"{label}, {dim}d" for _, label, dim in OTHERS}
    assert KNOWN.keys() <= {name for name, *_ in BUILT} | labels


def other(name, label, dim):
    """The weights that the operator's first case lacks, or starts at half their size or twice."""
    first = {n: starts(x, d) for n, x, d in BUILT}[name]
    return {
        weight: values
        for weight, values in starts(label, dim).items()
        if weight not in first or not first[weight][2] / 2 <= values[2] <= first[weight][2] * 2
    }


def written() -> str:
    lines = [
        "# Mean and root mean square of the weights of operators as they start (test_starts.py)."
    ]
    tables = {name: starts(label, dim) for name, label, dim in BUILT}
    tables |= {
        f"{label}, {dim}d": weights
        for name, label, dim in OTHERS
        if (weights := other(name, label, dim))
    }
    for name, weights in tables.items():
        lines += ["", f"[{name}]" if name in MODELS else f'["{name}"]']
        lines += [
            f'"{weight}" = [{mean:.3g}, {size:.6g}]'
            if abs(size - abs(mean)) > 1e-6 * size
            else f'"{weight}" = [{mean:.9g}, {size:.9g}]'
            for weight, (_, mean, size) in weights.items()
        ]
    return "\n".join(lines).replace("[0,", "[0.0,").replace(", 0]", ", 0.0]") + "\n"


if __name__ == "__main__":
    TABLE.write_text(written(), "utf-8")
