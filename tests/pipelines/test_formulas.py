"""Formulas of equations, maps and losses are set as mathematics."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from latex2mathml.converter import convert

from operators.data import AtTime, Block, Map, Rollout
from pdegen.recipe import load_recipe
from pdegen.store.card import escaped
from pipelines.config.declared import LossTable
from pipelines.reports.document import Formula
from pipelines.reports.report import equation, loss
from pipelines.reports.report import learned_map as learned

RECIPES = sorted(path.stem for path in Path("datasets").glob("*.toml"))


def error_summary(equation: str, recipe: dict[str, Any]) -> Any:
    """A store that says so."""
    content = {"name": "r", "problem": {}, **recipe}
    held = SimpleNamespace(equation=equation, recipe=SimpleNamespace(**content))
    return SimpleNamespace(metadata=held, raw_attributes={"recipe": recipe}, url="s.zarr")


@pytest.mark.parametrize("problem", [{}, {"equation": "of another machine"}])
def test_an_equation_without_a_formula_is_text(problem):
    words = "u_t <script>alert(1)</script> = |50 %| {a} $x$ \\alpha ~ ^ é 雪"
    found = Formula("Equation", equation(error_summary(words, {"problem": problem})))
    (text,) = ElementTree.fromstring(found.mathml).iter("{http://www.w3.org/1998/Math/MathML}mtext")
    assert text.text == words
    assert "<script" not in found.mathml
    assert found.markdown == escaped(words)


@pytest.mark.parametrize("latex", [r"u_t = \frac{", r"\left( x", "x^a^b", r"\begin{align} x"])
def test_a_formula_that_cannot_be_read_is_text(latex, monkeypatch):
    recipe = load_recipe("burgers-quick")
    monkeypatch.setattr(type(recipe.problem), "latex", latex)
    content = recipe.model_dump(mode="json")
    found = equation(error_summary("u_t + u u_x = 0", content))
    assert "u_t + u u_x = 0" in Formula("Equation", found).markdown.replace("\\", "")


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (
            r"u = \text{50\% of k\_x <script>alert(1)</script>}",
            "50% of k_x <script>alert(1)</script>",
        ),
        ("u = \\text{a\u202eb\x1b[2J}", r"a\u202eb\x1b[2J"),
        ("u = \\text{&lt;img src=x&gt;}", "<img src=x>"),
    ],
)
def test_text_of_a_declared_formula_is_escaped_where_it_is_inserted(latex, text):
    formula = Formula("Equation", latex)
    math = ElementTree.fromstring(formula.mathml)
    (found,) = math.iter("{http://www.w3.org/1998/Math/MathML}mtext")
    assert found.text.replace("\xa0", " ") == text
    for page in (formula.mathml, formula.markdown):
        assert not {"\u202e", "\x1b"} & set(page)
        assert not re.search("<(script|img)", page)


def test_a_formula_has_no_links():
    assert "javascript" not in Formula("u", r"\href{javascript:alert(1)}{u}").mathml


@pytest.mark.parametrize("recipe", RECIPES)
def test_formulas_of_equations_are_those_of_the_converter(recipe):
    latex = load_recipe(recipe).problem.latex
    assert unescape(Formula("Equation", latex).mathml) == unescape(
        re.sub(r"<(\w+)( [^>]*)?></\1>", r"<\1\2 />", convert(latex, display="block"))
    )


@pytest.mark.parametrize("name", ["a|b", "k_x", "<b>", "é", "雪", "$", "a b"])
def test_names_in_formulas_are_shown_as_they_are(name):
    formula = Formula("Learned map", learned(Map(), [name], name))
    math = ElementTree.fromstring(formula.mathml)
    assert "".join(math.itertext()).count(name) == 2


def formula(name: str, **settings: Any) -> str:
    return loss(LossTable.tables[name].parse({"name": name, **settings}, ""), "u")


def test_losses_are_those_of_their_names():
    assert formula("l1") == r"\frac{\|p - u\|_{L^1}}{\|u\|_{L^1}}"
    plain, weighted = formula("h1", gamma=0.2), formula("weighted-h1")
    assert r"\sqrt{\gamma h}" in plain
    assert r"\gamma = 0.2" in plain
    assert "a^{1/2}" in weighted
    assert "a^{1/2}" not in plain


def test_several_targets_are_the_components_of_one_function():
    assert learned(Map(), ["a"], "u, v") == r"a \mapsto p \approx (u,\,v)"
    for name in ("l2", "h1"):
        found = loss(LossTable.tables[name].parse({"name": name}, ""), "u₀, rho")
        assert found.startswith(r"\frac{\|p - (u_{0},\,\mathrm{rho})\|_{L^2}}")


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
def test_the_learned_map_is_that_of_the_task(task, formula):
    assert learned(task, ["u₀", "c"], "w") == formula
    assert "merror" not in convert(formula)


@pytest.mark.parametrize("recipe", RECIPES)
def test_symbols_of_variables_are_ascii_latex(recipe):
    for name, drawing in load_recipe(recipe).problem.physics().drawing.items():
        formula = learned(Map(), [drawing.symbol or name], drawing.symbol or name)
        assert formula.isascii()
        assert "$" not in formula


def test_the_learned_map_names_the_numbers_that_are_given():
    assert learned(Map(parameters=True), ["a"], "u", ["viscosity"]) == (
        r"(a,\,\mathrm{viscosity}) \mapsto p \approx u"
    )
    assert learned(Rollout(history=1, parameters=True), ["a"], "w", ["viscosity"]) == (
        r"(w_{k},\,\mathrm{viscosity}) \mapsto p \approx w_{k+1}"
    )
