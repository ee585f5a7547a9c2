"""TOML of anybody: refused within limits, before it costs time or memory."""

import tomllib

import pytest

from pdegen.schema import LimitError, SchemaError, TomlError, parse_override, parsed, read_toml

MONSTERS = {  # each takes seconds, gigabytes or the stack where it is parsed
    "nested 20,000 deep": ("a = " + "[" * 20_000 + "]" * 20_000, "nested more than 32 deep"),
    "nested over lines": ("a = " + "[\n" * 20_000 + "]\n" * 20_000, "nested more than 32 deep"),
    "inline tables": ("a = " + "{a = " * 20_000 + "1" + "}" * 20_000, "nested more than 32 deep"),
    "a long number": ("a = " + "9" * 5_000, "a number or a key of 5,000 letters: at most 400"),
    "a dotted key": (".".join("a" * 20_000) + " = 1", "a key of more than 32 parts"),
    "a quoted key": (" . ".join(['"a\\""'] * 20_000) + " = 1", "a key of more than 32 parts"),
    "a header": ("[" + ".".join("a" * 20_000) + "]", "a key of more than 32 parts"),
    "a long file": ("a = 1\n" * 10**6, "more than 262,144 bytes"),
}


@pytest.mark.parametrize("kind", MONSTERS)
@pytest.mark.timeout(5)
def test_a_monster_is_refused_before_it_is_parsed(kind, tmp_path, monkeypatch):
    text, message = MONSTERS[kind]
    monkeypatch.delattr(tomllib, "loads")
    with pytest.raises(LimitError, match=message):
        parsed(text)
    path = tmp_path / "recipe.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(SchemaError, match=f"recipe.toml: it has .*{message}") as error:
        read_toml(path)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("value", ["[" * 20_000, "9" * 5_000, "{a=" * 20_000])
def test_a_monster_is_no_override(value):
    with pytest.raises(SchemaError, match=r"^'training.lr': it has ") as error:
        parse_override(f"training.lr={value}")
    assert len(str(error.value)) < 200


def test_an_override_is_one_value():
    with pytest.raises(SchemaError, match="an override is one KEY=VALUE"):
        parse_override("samples=3\nseed=4")
    assert parse_override("times=[\n0.1,\n0.2]") == ("times", [0.1, 0.2])


@pytest.mark.parametrize(
    "text",
    [
        'a = "[[[["  # [[[[ {{{{\nb = [1]',
        'a = """[[x\\""" {"""""\nb = [1]',
        "a = '''it's '' [[['''\nb = '\\'",
        'a = "\\\\"\nb = "\\"]"',
        '"a.b".c."d" = 1.5\nx = 1979-05-27T07:32:00Z',
        "a = [\n" + "0.125, " * 5_000 + "]",
        "[[a]]\n[[a]]\n[a.b]\nc = {d = [[1], [2]]}",
    ],
)
def test_what_is_ordinary_is_parsed(text):
    assert parsed(text) == tomllib.loads(text)


def test_strings_and_comments_hide_brackets_and_dots():
    hidden = "[" * 100 + ".".join("a" * 100)
    for text in (f'a = "{hidden}"', f"a = '{hidden}'", f'a = """\n{hidden}"""', f"# {hidden}"):
        assert parsed(text) == tomllib.loads(text)
    with pytest.raises(LimitError):
        parsed(f'a = "x"\nb = {hidden}')


def test_what_is_no_toml_says_where():
    with pytest.raises(TomlError, match=r"not valid TOML: .*line 2"):
        parsed("a = 1\nb = ?")
