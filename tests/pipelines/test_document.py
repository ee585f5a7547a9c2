"""A document is a page, Markdown, and files for papers; whatever letters occur in it."""

from __future__ import annotations

import csv
import hashlib
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from pdegen.files import start_manifest
from pipelines.reports import document
from pipelines.reports.document import (
    Formula,
    Picture,
    Report,
    Section,
    Table,
    html,
    markdown,
    scientific,
)
from pipelines.reports.figures import picture

HOSTILE = "&%$#_{}~^\\ -- [x] <a> | `'\" ‖²√ν∩πΣ½ ñåß 雪 \t 1.5e-3 \u2028"


def report(*sections: Section, title: str = "A & B") -> Report:
    return Report(title, "What it is.", "", [("error", "1")], list(sections))


def drawn(name: str = "curve") -> Picture:
    figure = Figure(figsize=(2, 2))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1])
    axes.pcolormesh(np.arange(4.0).reshape(2, 2), rasterized=True)
    axes.set_title("ν in m²")
    return picture(figure, name, "A curve.")


def bare(text: str) -> str:
    """LaTeX without what may hold a special letter: commands, and mathematics."""
    assert text.isascii()
    without = re.sub(r"\\([A-Za-z]+|.)", "", text)
    assert without.count("$") % 2 == 0
    return re.sub(r"\$[^$&%#~]*\$", "", without)


@pytest.mark.parametrize("words", [HOSTILE, *HOSTILE, "a_b^c", "50 % & $5", "‖p − u‖/‖u‖", "10⁻³"])
def test_no_special_letter_is_left_in_latex(words):
    text = bare(document.latex_text(words))
    assert not re.search(r"[&%#_~^$\\<>|\"`]", text.replace("``", ""))
    assert re.sub(r"[^{}]", "", text) in ("", *("{}" * n for n in range(1, 30)))
    assert "--" not in text


def test_letters_of_mathematics_are_set_as_mathematics():
    assert document.latex_text("‖u‖₂ ≤ 10⁻³") == r"$\|$u$\|$$_{2}$ $\le$ 10$^{-3}$"
    assert document.latex_text("Γ ½ √2") == r"$\Gamma$ $\tfrac{1}{2}$ $\surd$2"
    assert document.latex_text("−1.20e-3 ± 0.00e0") == r"$-$$1.20 \cdot 10^{-3}$ $\pm$ 0.00"
    assert (
        document.latex_text("d41e5b, v1e2") == "d41e5b, v1e2"
    )  # a digest and a name are no numbers


def test_a_table_has_rules_a_caption_and_a_label(tmp_path):
    table = Table([("one & two", "1.00e-2"), ("x", "3")], ("name", "5 %"), name="of all")
    report(Section("Scores", tables=(table,))).write(tmp_path)
    lines = (tmp_path / "tables/scores-of-all.tex").read_text("ascii").splitlines()
    body = lines[lines.index(r"\toprule") + 1 : lines.index(r"\bottomrule")]
    assert body == [
        r"name & 5 \% \\",
        r"\midrule",
        r"one \& two & $1.00 \cdot 10^{-2}$ \\",
        r"x & 3 \\",
    ]
    assert r"\caption{A \& B. Scores: of all}" in lines
    assert r"\label{tab:scores-of-all}" in lines
    assert r"\begin{tabular}{@{}lr@{}}" in lines


def test_csv_has_all_digits_of_a_number(tmp_path):
    row = ("a, b", scientific(1 / 3), "1.2 ± 0.1")
    report(Section("Errors", tables=(Table([row], ("of", "mean", "word")),))).write(tmp_path)
    with (tmp_path / "tables/errors.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["of", "mean", "word"],
            ["a, b", "0.3333333333333333", "1.2 ± 0.1"],
        ]


def test_pictures_are_also_vectors_in_pdf(tmp_path):
    report(Section("Curves", pictures=(drawn(),))).write(tmp_path)
    pdf = (tmp_path / "pictures/curve.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/CIDFontType2" in pdf  # letters, no outlines of them
    assert b"CreationDate" not in pdf


def test_a_picture_is_the_same_bytes_in_another_process():
    code = (
        "import hashlib; from tests.pipelines.test_document import drawn; one = drawn();"
        "print(hashlib.sha256(one.pdf + one.svg.encode()).hexdigest())"
    )
    there = subprocess.check_output(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(filter(None, sys.path))},
        text=True,
    )
    here = drawn()
    assert there.strip() == hashlib.sha256(here.pdf + here.svg.encode()).hexdigest()


def test_files_of_an_earlier_report_are_removed(tmp_path):
    table = Table([("a", "b")])
    start_manifest(tmp_path)
    report(
        Section("Old", tables=(table,), pictures=(drawn("old"),)),
        Section("Kept", tables=(table,), pictures=(drawn("kept"),)),
    ).write(tmp_path)
    (tmp_path / "tables/mine.csv").write_text("no file of a report")
    report(Section("Kept", tables=(table,), pictures=(drawn("kept"),))).write(tmp_path)
    there = {
        path.name for folder in ("pictures", "tables") for path in (tmp_path / folder).iterdir()
    }
    assert there == {"kept.svg", "kept.pdf", "kept.csv", "kept.tex", "mine.csv"}


def test_the_contents_lead_to_the_sections():
    page = html(report(Section("One"), Section("Two & three"), Section("One")))
    links = re.findall(r'<li><a href="#([^"]+)">([^<]+)</a>', page)
    assert links == [("one", "One"), ("two-three", "Two &amp; three"), ("one-2", "One")]
    assert re.findall(r'<section id="([^"]+)">', page) == [anchor for anchor, _ in links]


def test_tables_and_pictures_are_numbered_through():
    table = Table([("a", "b")], name="all")
    one = report(
        Section("First", tables=(table,), pictures=(drawn("a"), drawn("b"))),
        Section("Second", tables=(Table([("c", "d")]),), pictures=(drawn("c"),)),
    )
    for text in (html(one), markdown(one)):
        assert re.findall(r"Table (\d)\.", text) == ["1", "2"]
        assert re.findall(r"Figure (\d)\.", text) == ["1", "2", "3"]
    assert "<b>Table 1.</b> First: all</caption>" in html(one)
    assert "<b>Table 2.</b> Second</caption>" in html(one)


def test_characters_that_nobody_sees_are_nowhere_in_a_report(tmp_path):
    unseen = "a\x1b[2J\u202e"
    table = Table([(unseen, unseen)], ("b", unseen), name=unseen)
    picture = replace(drawn("a"), caption=unseen, live=f"<p>{unseen}</p>")
    section = Section(
        unseen,
        text=(unseen,),
        tables=(table,),
        pictures=(replace(picture, svg=f"<svg>\n<text>{unseen}</text></svg>"),),
        code=(unseen,),
        listings=((unseen, f"b\n{unseen}"),),
        formulas=(Formula(unseen, document.quoted(f"{unseen} = u\x07")),),
    )
    one = replace(
        report(section), title=unseen, summary=unseen, notice=unseen, headline=[(unseen, "1")]
    )
    for text in (html(one), markdown(one)):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert text.count("a\\x1b[2J\\u202e") >= 2
    one.write(tmp_path)
    picture = (tmp_path / "pictures/a.svg").read_text("utf-8")
    assert picture == "<svg>\n<text>a\\x1b[2J\\u202e</text></svg>"
