"""The contract finds faults in operators of users, and names them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from operators.base import Operator, check_input
from operators.testing import ContractError, Expected, check_operator
from operators.testing.checks import refused

QUICK = Expected(steps=0)


class Local(Operator):
    """u(x) = f(a(x))."""

    def __init__(self, in_channels: int = 1, out_channels: int = 1, dim: int = 1) -> None:
        super().__init__(in_channels, out_channels, dim)
        self.f = nn.Linear(in_channels, out_channels)

    def forward(self, a, x, y=None, mask=None):
        check_input(self, a, x, y, mask)
        return self.f(a)


class Unused(Local):
    def __init__(self, in_channels: int = 1, out_channels: int = 1, dim: int = 1) -> None:
        super().__init__(in_channels, out_channels, dim)
        self.g = nn.Linear(1, 1)


class Noisy(Local):
    def forward(self, a, x, y=None, mask=None):
        return super().forward(a, x, y, mask) + torch.rand(1)


class OfTheBatch(Local):
    def forward(self, a, x, y=None, mask=None):
        return super().forward(a - a.mean(dim=0), x, y, mask)


class Careless(Local):
    def forward(self, a, x, y=None, mask=None):
        return self.f(a)


class OfPoints(Local):
    """A difference of neighbours without the spacing, which has no limit."""

    def forward(self, a, x, y=None, mask=None):
        return super().forward(a.diff(dim=1, prepend=a[:, -1:]) * a.shape[1] ** 2, x, y, mask)


class Unsaved(Local):
    def __init__(self, in_channels: int = 1, out_channels: int = 1, dim: int = 1) -> None:
        super().__init__(in_channels, out_channels, dim)
        self.scale = 0.0

    def forward(self, a, x, y=None, mask=None):
        if self.training:
            self.scale += 1.0
        return super().forward(a, x, y, mask) * (1 + self.scale)


class OneChannel(Local):
    def forward(self, a, x, y=None, mask=None):
        return super().forward(a, x, y, mask)[..., :1]


class Padded(Local):
    """It declares padding, and means over padding."""

    domains = frozenset({"periodic", "cell", "nodal", "cloud"})
    points_by_sample = True
    masks = True

    def forward(self, a, x, y=None, mask=None):
        grid = tuple(range(1, a.ndim - 1))
        return super().forward(a + a.mean(dim=grid, keepdim=True), x, y, mask)


def test_a_good_operator_gets_the_list_of_what_was_checked():
    state = torch.get_rng_state()
    checked = check_operator(Local, QUICK)
    assert torch.equal(torch.get_rng_state(), state)
    assert checked[0] == "in 1-D: the gradient reaches every parameter"
    assert "in 2-D: values converge as the grid is refined" in checked
    assert checked[-1] == "in 2-D: other domains are refused"


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        (Unused, "gradient reaches every parameter: not kept: the parameter g.weight has no grad"),
        (Noisy, "evaluation is deterministic: not kept: two evaluations of one input differ"),
        (OfTheBatch, "a batch equals its samples: not kept: a sample has other values in a batch"),
        (Careless, "points y are met or refused: not kept: points y, which the class does not"),
        (OfPoints, "values converge as the grid is refined: not kept: values on 32, 64 and 128"),
        (Unsaved, "a checkpoint gives the same bits: not kept: the operator of a checkpoint gives"),
        (OneChannel, "it maps 2 channels to 3: not kept: u has the shape"),
        (Padded, "a batch equals its samples, cloud padded points: not kept: cloud padded"),
    ],
)
def test_a_fault_is_named_in_one_sentence(operator, said):
    with pytest.raises(ContractError) as error:
        check_operator(operator, QUICK, dims=[1])
    assert said in str(error.value)
    assert str(error.value).startswith("in 1-D: ")
    assert "\n" not in str(error.value)


def test_what_does_not_learn_is_found():
    with pytest.raises(ContractError, match="after 20 steps on eight samples the error in train"):
        check_operator(Local, Expected(steps=20), dims=[1])


def test_settings_that_the_constructor_refuses_are_no_fault_of_the_contract():
    with pytest.raises(TypeError, match="unexpected keyword argument 'width'"):
        check_operator(Local, QUICK, dims=[1], width=3)


def test_a_complex_weight_is_two_numbers() -> None:
    model = Local()
    model.factors = nn.Parameter(torch.ones(8, dtype=torch.cfloat))
    model.fixed = nn.Parameter(torch.ones(8), requires_grad=False)
    assert model.parameter_count == 2 + 2 * 8


def test_a_refusal_by_another_message_is_a_fault():
    def refuse(message: str) -> None:
        raise ValueError(message)

    refused("points y", "a grid", refuse, "it takes no points y")
    with pytest.raises(ContractError, match="a grid should be refused by 'points y', not singular"):
        refused("points y", "a grid", refuse, "singular")
    with pytest.raises(ContractError, match="a grid is not refused"):
        refused("points y", "a grid", lambda: None)
