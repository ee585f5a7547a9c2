"""Numbers of operators: each preset's against a table, and that each setting has an effect.

The number of parameters that the contract counts is blind to most of them: scales, rates of
dropout, gains, words.

    python -m tests.operators.test_settings        # adds the operators that the table lacks

The presets of a new operator are compared once the table has them.
"""

import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from operators.registry import OPERATORS
from operators.testing.checks import points
from pipelines.config.declared import MODELS, parse_model
from tests.operators.cases import CASES, DIMS

FILE = Path(__file__).parent / "presets.toml"
TABLE = tomllib.loads(FILE.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Beside:
    """A case in which a setting has an effect, if it has none in the cases of the contract.

    Args:
        settings: What it acts beside; they replace those of the operator's first case.
        channels: Input and output channels.
        weighted: Whether the points have quadrature weights, which differ.
        curved: Whether the grid is a mesh, whose positions are not those of its indices.
        n: Points along each axis.
        dim: Dimension; the highest of the operator where it is None.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    channels: tuple[int, int] = (1, 1)
    weighted: bool = False
    curved: bool = False
    n: int = 16
    dim: int | None = None


FRAMES = Beside({"frame_channels": 2, "frame_padding": 9}, (2, 8))
BESIDE = {
    "galerkin-transformer": [Beside({"quadrature": True}, weighted=True)],
    "galerkin-transformer-2d": [Beside({"decoder": "pointwise"})],
    "fno": [FRAMES, Beside({"padding": 0.0, "padding_points": 0, "period": 1.2})],
    "f-fno": [FRAMES],
    "u-fno": [FRAMES],
    "deeponet": [
        Beside({"sensor_grid": "points", "sensors": 256}, curved=True),
        Beside({"branch": "convolution"}, n=32),
    ],
    "shift-deeponet": [Beside(n=32)],
    "pod-deeponet": [
        Beside({"sensor_grid": "ends", "branch": "mlp", "points": 31}, n=31, dim=1)
    ],
    "pit": [Beside(curved=True), Beside({"scale": 0.05})],
    "lno": [Beside(curved=True)],
    "gnot": [Beside(channels=(2, 1))],
    "upt": [Beside({"neighbours": 4})],
    "lsm": [Beside({"patches": 8})],
    "transolver-plus": [Beside({"coordinates": "lattice"})],
    "oformer": [Beside({"decoder": "marching", "frame_channels": 2}, (2, 8))],
    "ht-net": [Beside({"patch": 6, "stride": 2}, n=32)],
    "factformer": [Beside({"decoder": "marching", "frame_channels": 2}, (2, 8)),
                   Beside(curved=True)],
    "scot": [Beside(n=24)],
}  # fmt: skip


def plain(value: Any) -> Any:
    """A setting as TOML has it."""
    return list(value) if isinstance(value, tuple) else "-" if value is None else value


def presets(name: str) -> dict[str, dict[str, Any]]:
    """The settings of each preset of an operator, without the operator's name."""
    built = {
        preset: parse_model({"name": name, "preset": preset})
        for preset in MODELS[name].operator.presets
    }
    return {
        preset: {
            key: plain(getattr(model, key)) for key in type(model).model_fields if key != "name"
        }
        for preset, model in built.items()
    }


@pytest.mark.parametrize("name", TABLE)
def test_presets_have_the_settings_of_the_table(name):
    assert presets(name) == TABLE[name]


def others(value: Any, annotation: Any) -> Iterator[Any]:
    """Values near a setting's own, and the other words where it is one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (2 * value, value + 1, max(1, value // 2), value + 2)
    elif isinstance(value, float):
        yield from ((0.3,) if value == 0 else (1.5 * value, 0.5 * value))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            for other in others(item, None):
                yield [*value[:place], other, *value[place + 1 :]]
    kinds = get_args(annotation)
    for kind in [k for option in kinds for k in (get_args(option) or (option,))]:
        if isinstance(kind, str) and kind != value:
            yield kind


class Shown:
    """An operator of some settings: its weights, and its values in training and in evaluation."""

    def __init__(self, name: str, settings: dict[str, Any], dim: int, beside: Beside) -> None:
        torch.manual_seed(1)
        # not by `parse_model`, which builds every operator a second time to count its weights
        self.model = OPERATORS[name].build(settings, *beside.channels, dim)
        self.beside = beside
        self.weights = {name: v.clone() for name, v in self.model.state_dict().items()}

    @cached_property
    def values(self) -> list[torch.Tensor]:
        """In training and in evaluation; empty where these settings are not for this grid."""
        model, beside = self.model, self.beside
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                torch.manual_seed(100 + number)
                parameter.add_(0.05 * torch.randn_like(parameter))
        x = points(model.dim, beside.n, torch.float32)
        x = x + 0.02 * torch.sin(2 * torch.pi * x.flip(-1)) if beside.curved else x
        torch.manual_seed(3)
        a = torch.randn(3, *x.shape[:-1], beside.channels[0])
        model.adapt([torch.randn(20, *x.shape[:-1], beside.channels[1])], x)
        weight = {"weight": 1 + x.square().sum(-1)} if beside.weighted and model.weights else {}
        with torch.no_grad():
            torch.manual_seed(4)
            try:
                return [model.train()(a, x, **weight), model.eval()(a, x, **weight)]
            except ValueError:
                return []

    def differs(self, other: "Shown", value: Any) -> bool:
        """Whether weights or values differ; a word may also make the grid one that is refused."""
        if not alike(self.weights, other.weights):
            return True
        own, others = (dict(enumerate(shown.values)) for shown in (self, other))
        if own and others:
            return not alike(own, others)
        return isinstance(value, str) and bool(own or others)


def alike(one: dict[Any, torch.Tensor], other: dict[Any, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", [n for n in MODELS if n != "neuraloperator"])
def test_each_setting_changes_its_operator(name):
    """In one of its cases at least: a setting may matter beside some others alone."""
    labels = [label for label, case in CASES.items() if case.name == name]
    dims = {label: max(dim for dim in DIMS[label] if dim < 3) for label in labels}
    places = [(CASES[label].settings, dims[label], Beside()) for label in labels]
    first = CASES[labels[0]].settings
    places += [
        (first | beside.settings, beside.dim or dims[labels[0]], beside)
        for beside in BESIDE.get(name, [])
    ]
    without_effect = MODELS[name].model_fields.keys() - {"name"}
    for settings, dim, beside in places:
        own = parse_model({"name": name, **settings})
        before = Shown(name, settings, dim, beside)
        for key in sorted(without_effect):
            annotation = MODELS[name].model_fields[key].annotation
            for value in others(getattr(own, key), annotation):
                try:
                    acts = before.differs(Shown(name, {**settings, key: value}, dim, beside), value)
                except ValueError:  # it does not fit the other settings
                    continue
                if acts:
                    without_effect = without_effect - {key}
                    break
    assert without_effect == set()


def lacking() -> list[str]:
    """Lines of the operators with presets that the table lacks."""
    lines = list[str]()
    for name in MODELS:
        if name not in TABLE and (rows := presets(name)):
            lines += ["", f"[{name}]"]
            for preset, settings in rows.items():
                pairs = (f"{k} = {json.dumps(v)}" for k, v in sorted(settings.items()))
                lines.append(f"{preset} = {{ {', '.join(pairs)} }}")
    return lines


def test_written_rows_are_read_as_they_are(monkeypatch):
    removed = dict(list(TABLE.items())[:4])
    left = {name: rows for name, rows in TABLE.items() if name not in removed}
    monkeypatch.setattr(sys.modules[__name__], "TABLE", left)
    assert tomllib.loads("\n".join(lacking())) == removed


if __name__ == "__main__":
    FILE.write_text("\n".join([FILE.read_text("utf-8").rstrip("\n"), *lacking()]) + "\n", "utf-8")
