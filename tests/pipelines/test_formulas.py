"""Formulas of equations, maps and losses are set as mathematics, from the words that there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from latex2mathml.converter import convert

from operators.data import AtTime, Block, Map, Rollout, Task
from pdegen.recipe import load_recipe
from pipelines.declared.registry import H1Loss, L1Loss, WeightedH1Loss
from pipelines.reports.formulas import equation, learned, loss

RECIPES = sorted(path.stem for path in Path("datasets").glob("*.toml"))


@pytest.mark.parametrize(
    ("words", "latex"),
    [
        ("u_t = 2e-05 laplace u", r"u_{t} = 2 \cdot 10^{-5} \Delta  u"),
        (
            "-div(a grad u) = source on (0,1)^2",
            r"-\nabla\cdot (a \nabla  u) = f\text{ on }(0,1)^{2}",
        ),
        ("u·∇w = viscosity Δw", r"u\cdot \nabla w = \nu \Delta w"),
        ("W = C1 (I1 - 3)", r"W = C_{1} (I_{1} - 3)"),
        ("in a bent pipe of height 1", r"\text{in a bent pipe of height }1"),
        ("(u^2/2)_x = 0", r"(u^{2}/2)_{x} = 0"),
        ("50 % {of} $5_", r"50 \text{\%} \text{\{of}\text{\}} \text{\$}5\text{\_}"),
    ],
)
def test_words_become_latex(words: str, latex: str) -> None:
    assert equation(words) == latex


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_equation_is_ascii_latex_that_becomes_mathml(recipe: str) -> None:
    found = equation(load_recipe(recipe).problem.formula)
    assert found.isascii()
    assert found.count("{") == found.count("}")
    assert "merror" not in convert(found)


def test_markup_in_an_equation_is_text() -> None:
    assert "<script" not in convert(equation("u <script>alert(1)</script> = 0"))


def test_losses_are_those_of_their_names() -> None:
    assert loss(L1Loss(name="l1"), "u") == r"\frac{\|p - u\|_{L^1}}{\|u\|_{L^1}}"
    plain, weighted = (
        loss(made, "u")
        for made in (H1Loss(name="h1", gamma=0.2), WeightedH1Loss(name="weighted-h1"))
    )
    assert r"\sqrt{\gamma h}" in plain
    assert r"\gamma = 0.2" in plain
    assert "a^{1/2}" in weighted
    assert "a^{1/2}" not in plain


@pytest.mark.parametrize(
    ("task", "formula"),
    [
        (Map(), r"u_{0},\,c \mapsto p \approx w"),
        (Rollout(history=1), r"w_{k} \mapsto p \approx w_{k+1}"),
        (Rollout(history=10), r"(w_{k-9},\,\dots,\,w_{k}) \mapsto p \approx w_{k+1}"),
        (Rollout(history=1, static=True), r"(w_{k},\,u_{0},\,c) \mapsto p \approx w_{k+1}"),
        (AtTime(), r"(u_{0},\,c,\,t) \mapsto p \approx w(t)"),
        (AtTime(history=3), r"(w_{1},\,w_{2},\,w_{3},\,t) \mapsto p \approx w(t)"),
        (Block(history=10), r"(w_{1},\,\dots,\,w_{10}) \mapsto p \approx (w_{11},\,\dots)"),
    ],
)
def test_the_learned_map_is_that_of_the_task(task: Task, formula: str) -> None:
    assert learned(task, ["u₀", "c"], "w") == formula
    assert "merror" not in convert(formula)


@pytest.mark.parametrize("recipe", RECIPES)
def test_symbols_of_variables_are_ascii_latex(recipe: str) -> None:
    for name, drawing in load_recipe(recipe).problem.physics().drawing.items():
        formula = learned(Map(), [drawing.symbol or name], drawing.symbol or name)
        assert formula.isascii()
        assert "$" not in formula
