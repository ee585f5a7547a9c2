"""How the packages are built: which way imports go, and what is long."""

from pathlib import PurePosixPath

from benchmarks.structure import Structure, checkout, structures


def package(**modules):
    return {PurePosixPath(f"p/{name}.py"): text for name, text in modules.items()}


def test_no_import_goes_back():
    for structure in structures(checkout()).values():
        assert structure.back_arrows == set()


def test_back_arrows_are_found_over_several_rooms_and_within_functions():
    source = package(
        a="from p.b import f", b="def f():\n    import p.c", c="import p.a", d="import p.a"
    )
    structure = Structure("p", source)
    assert structure.back_arrows == {("a", "b"), ("b", "c"), ("c", "a")}
    assert structure.floors == 2


def test_rooms_are_folders_and_modules():
    files = ["p/__init__.py", "p/a.py", "p/b/__init__.py", "p/b/c.py"]
    structure = Structure("p", dict.fromkeys(map(PurePosixPath, files), ""))
    assert structure.rooms == {"a", "b"}


def test_long_parts_are_found():
    structure = Structure("p", package(a="x = 1\n" * 401, b="def f():\n" + "    x = 1\n" * 60))
    assert structure.long_modules == {"p/a.py": 401}
    assert structure.long_functions == {"p/b.py:f": 61}


def test_types_and_examples_are_counted():
    text = 'from typing import Any\ndef f(x: Any) -> "int":\n    """F.\n\n    >>> f(1)\n    """\n'
    figures = Structure("p", package(a=text)).figures
    assert (figures.any_per_1000_lines, figures.docstrings, figures.with_examples) == (166.7, 1, 1)
