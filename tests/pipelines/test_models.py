"""Words and operators: presets, overrides, an operator of one's own."""

import pytest
import torch

from pdegen.schema import SchemaError
from pipelines.config import declared as models
from pipelines.config.declared import MODELS, parse_model
from pipelines.config.experiment import load_experiment
from tests.plugins import in_another_process, registered_alone


def test_a_preset_stands_for_settings_and_own_ones_go_before_it():
    plain = parse_model({"name": "fno", "preset": "darcy"})
    assert plain.arguments["modes"] == 12
    assert plain.arguments["padding"] == pytest.approx(9 / 85)
    assert parse_model({"name": "fno", "preset": "darcy", "modes": 8}).arguments["modes"] == 8
    with pytest.raises(SchemaError, match="unknown preset 'darcey' of fno: did you mean darcy"):
        parse_model({"name": "fno", "preset": "darcey"})


def test_another_name_or_preset_takes_the_old_settings_away():
    experiment = load_experiment("burgers-quick")  # of width 64
    fno = experiment.with_overrides({"model.name": "fno", "model.modes": 8})
    assert fno.model == parse_model({"name": "fno", "modes": 8})
    # a word that other operators have too takes nothing away
    heads = {"model.name": "ono", "model.heads": 2, "model.queries": True}
    ono = experiment.with_overrides({**heads, "model.coordinates": "periodic"})
    assert ono.model.arguments["heads"] == 2
    assert ono.model.arguments["queries"]
    wide = experiment.with_overrides({"model.preset": "burgers-gt-ln"})
    assert wide.model == parse_model({"name": "galerkin-transformer", "preset": "burgers-gt-ln"})


@pytest.mark.parametrize("own", [
    {"name": "pit", "preset": "airfoil"},
    {"name": "neuraloperator", "settings": '{"n_modes": [8, 6], "hidden_channels": 8}'},
])  # fmt: skip
def test_one_number_for_each_axis_of_the_plane_can_be_declared(own):
    declared = parse_model(own)
    with torch.device("meta"):
        assert declared.build(1, 1, 2).dim == 2
    with pytest.raises(ValueError, match="one number for each of 1 axes"):
        declared.build(1, 1, 1)


def test_reading_a_declaration_draws_no_random_number():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    for name in MODELS:
        parse_model({"name": name})
    assert torch.equal(torch.rand(3), expected)


def test_a_declaration_is_tried_once_however_often_it_is_read(monkeypatch):
    tried = []

    def build(self, *words):
        tried.append(self.heads)
        if self.heads == 3:
            raise ValueError("heads must divide the width")
        return torch.nn.Identity()

    monkeypatch.setattr(MODELS["galerkin-transformer-2d"], "build", build)
    monkeypatch.setattr(models, "_REFUSALS", {})
    good, bad = ({"name": "galerkin-transformer-2d", "heads": heads} for heads in (4, 3))
    for _ in range(3):
        parse_model(good)
        with pytest.raises(SchemaError, match="heads must divide the width"):
            parse_model(bad)
    assert tried == [4, 3]


OWN = """
import torch
from torch import nn
from operators.base import EVERYWHERE, Operator
from operators.registry import register

class Own(Operator):
    domains = EVERYWHERE
    def __init__(self, *, in_channels=1, out_channels=1, dim=1{arguments}):
        super().__init__(in_channels, out_channels, dim)
        self.f = nn.Linear(in_channels, out_channels)

    def forward(self, a, x, y=None, mask=None):
        {body}

register("own", Own{words})
"""


@pytest.mark.parametrize(
    ("arguments", "body", "words", "message"),
    [
        (", width=8", "return self.f(a)", "",
         "own: Own: argument width has no type annotation, such as width: int"),
        (", **more", "return self.f(a)", "", "Own takes arbitrary arguments **more: name each"),
        ("", "return self.f(a).mean(dim=1)", "",
         "Own gives u of shape (1, 1) for a of shape (1, 32, 1): expected (1, 32, 1), channels"),
        ("", "return None", "", "Own gives u of shape NoneType for a of shape (1, 32,"),
        ("", "return self.g(a)", "",
         "own.py, line 14: AttributeError: 'Own' object has no attribute 'g' (--debug shows"),
    ],
)  # fmt: skip
def test_mistakes_in_ones_own_operator_are_one_line(
    burgers, refused, tmp_path, arguments, body, words, message
):
    (tmp_path / "own.py").write_text(OWN.format(arguments=arguments, body=body, words=words))
    with registered_alone():
        in_another_process()
        command = ("train", "--data", burgers, "--model", "own", "--plugin", "own.py")
        assert message in refused(*command)


def test_only_keys_of_the_model_in_hand_are_offered():
    experiment = load_experiment("burgers-quick")  # a Galerkin Transformer
    content = experiment.model_dump(mode="json")
    content["model"]["slcies"] = 4
    for read in (
        lambda: experiment.with_overrides({"model.slcies": 4}),
        lambda: type(experiment).parse(content, "here"),
    ):
        with pytest.raises(SchemaError, match="slcies") as error:
            read()
        assert "model.slices" not in str(error.value)
    with pytest.raises(SchemaError, match=r"did you mean model\.latent"):
        experiment.with_overrides({"model.name": "pit", "model.latnet": 4})
