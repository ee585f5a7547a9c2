from typing import Annotated, Literal

import pytest
from pydantic import Field, model_validator

from pdegen.schema import Count, Positive, SchemaError, Strict, parse_override


class Steel(Strict):
    kind: Literal["steel"]
    stiffness: Positive


class Rubber(Strict):
    kind: Literal["rubber"]
    stiffness: Positive
    softness: Positive = 1.0


class Part(Strict):
    length: Positive
    material: Annotated[Steel | Rubber, Field(discriminator="kind")]


class Machine(Strict):
    name: str
    length: Count
    left: Part
    right: Part
    tags: tuple[str, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _not_tiny(self) -> "Machine":
        if self.length < 2:
            raise ValueError("a machine has a length of at least 2")
        return self


STEEL = {"length": 1.0, "material": {"kind": "steel", "stiffness": 2.0}}
RUBBER = {"length": 1.0, "material": {"kind": "rubber", "stiffness": 0.1}}
MACHINE = {"name": "m", "length": 3, "left": STEEL, "right": RUBBER}


def refusal(content):
    with pytest.raises(SchemaError) as error:
        Machine.parse(content, "here")
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lenght": 1}, "here: unknown key 'lenght': did you mean length?"),
        ({"zzz": 1}, "here: unknown key 'zzz': known: name, length, left.length"),
        ({"left": {**STEEL, "lenth": 1}}, "here: unknown key 'left.lenth': did you mean length?"),
        ({"length": 0}, "here: length: must be at least 1, got 0"),
        ({"length": "3"}, "here: length: must be a whole number, got '3'"),
        ({"length": 3.5}, "here: length: must be a whole number, got 3.5"),
        ({"length": True}, "here: length: must be a whole number, got True"),
        ({"left": {**STEEL, "length": float("nan")}}, "here: left.length: must be a"),
        ({"name": 3}, "here: name: must be a string, got 3"),
        ({"left": {**STEEL, "length": -1.0}}, "here: left.length: must be greater than 0"),
        ({"left": {"length": 1.0}}, "here: left.material: is missing"),
        ({"length": 1}, "here: a machine has a length of at least 2"),
        (
            {"left": {"length": 1.0, "material": {"kind": "steel", "stiffness": 0.0}}},
            "here: left.material.stiffness: must be greater than 0, got 0.0",
        ),
        (
            {"left": {"length": 1.0, "material": {**STEEL["material"], "softness": 1.0}}},
            "here: key 'left.material.softness' does not apply to steel",
        ),
    ],
)
def test_a_refusal_names_key_value_and_what_is_allowed(change, message):
    assert refusal({**MACHINE, **change}).startswith(message)


def test_an_unknown_choice_names_the_known_ones():
    left = {"length": 1.0, "material": {"kind": "wood", "stiffness": 1.0}}
    message = refusal({**MACHINE, "left": left})
    assert message == "here: left.material.kind: unknown 'wood', known: steel, rubber"
    message = refusal({**MACHINE, "left": {"length": 1.0, "material": {"stiffness": 1.0}}})
    assert message == "here: left.material.kind: is missing, known: steel, rubber"
    message = refusal({**MACHINE, "left": {"length": 1.0, "material": "steel"}})
    assert message == "here: left.material: must be a table, got 'steel'"


# files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"length = ", "is not valid TOML: Invalid value"),
        (b"length = 1.0\nlength = 2.0", "is not valid TOML: Cannot overwrite a value"),
        (b"\xff\xfe", "byte 0 is not UTF-8, as TOML requires"),
        (b"# nothing", "declares nothing: it is empty"),
        (b"width = 1", "unknown key 'width': known: length, material"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "part.toml"
    path.write_bytes(content)
    with pytest.raises(SchemaError, match=message) as error:
        Part.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


# keys


def test_all_keys_are_dotted_paths_to_values():
    assert Machine.keys() == [
        "name", "length",
        "left.length", "left.material.kind", "left.material.stiffness", "left.material.softness",
        "right.length", "right.material.kind", "right.material.stiffness",
        "right.material.softness", "tags",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("name", "name"),
        ("length", "length"),  # the one nearest the top
        ("left.length", "left.length"),
        ("left", "left"),  # all of a table
        ("left.material.softness", "left.material.softness"),
        ("right.material.kind", "right.material.kind"),
    ],
)
def test_the_end_of_a_key_is_enough(short, full):
    assert Machine.full_key(short) == full


def test_an_ambiguous_key_names_its_meanings():
    with pytest.raises(
        SchemaError,
        match=r"'softness' is ambiguous: left\.material\.softness or right\.material\.softness",
    ):
        Machine.full_key("softness")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("nam", "did you mean name"),
        ("left.materiel.stifness", "did you mean left.material.stiffness or"),
        ("ength", "did you mean length"),
        ("q", "known: name, length, left.length"),
    ],
)
def test_an_unknown_key_names_the_near_ones(key, hint):
    with pytest.raises(SchemaError) as error:
        Machine.full_key(key)
    assert str(error.value).startswith(f"unknown key {key!r}: {hint}")


def test_a_copy_has_other_values_and_leaves_the_original():
    machine = Machine.parse(MACHINE, "here")
    other = machine.replaced({"left.length": 2.5, "name": "n"}, "here")
    assert (other.left.length, other.name) == (2.5, "n")
    assert other.right == machine.right
    assert machine == Machine.parse(MACHINE, "here")


def test_a_copy_is_checked_as_a_whole():
    machine = Machine.parse(MACHINE, "here")
    with pytest.raises(SchemaError, match="there: a machine has a length of at least 2"):
        machine.replaced({"length": 1}, "there")
    with pytest.raises(SchemaError, match=r"there: key 'name\.first' does not apply here"):
        machine.replaced({"name.first": "x"}, "there")


# words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", ("a", 1)),
        ("a.b=1e-3", ("a.b", 1e-3)),
        ("a=true", ("a", True)),
        ("a=word", ("a", "word")),
        ('a="1"', ("a", "1")),
        ("a=[0.1, 0.2]", ("a", [0.1, 0.2])),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
    ],
)
def test_an_override_is_a_key_and_a_value_of_toml(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize("text", ["", "a", "=1"])
def test_an_override_without_a_key_or_a_value_is_refused(text):
    with pytest.raises(SchemaError, match="KEY=VALUE, got"):
        parse_override(text)
