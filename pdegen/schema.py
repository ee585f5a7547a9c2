"""Declarations read from TOML. Unknown keys and impossible values cause one-line errors."""

from __future__ import annotations

import difflib
import math
import re
import reprlib
import stat
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from pdegen.files import message_of

# Parsing of untrusted TOML. A text that would need too much time or memory is refused and not
# parsed.


MOST_BYTES = 2**18  # largest size of a declaration; shipped ones have at most a thirtieth of it
_PARTS = 32  # largest number of parts of a dotted key; the time to parse grows with its square
_DEPTH = 32  # deepest nesting of arrays and tables
_LETTERS = 400  # longest number or bare key
# atomic groups (?>...), because possessive ones, (...)*+, end too early before Python 3.11.5
_TOKEN = re.compile(
    r"""
      (?P<word> "{3}(?>(?:[^"\\]+|\\.|"{1,2}(?!"))*)"{3,5} | '{3}(?>(?:[^']+|'{1,2}(?!'))*)'{3,5}
              | "(?>(?:[^"\\\n]+|\\.)*)"? | '[^'\n]*+'? )
    | (?P<bare> [^\s"'\#\[\]{},.=]++ )
    | \#[^\n]*+
    | (?P<sign> [\[\]{}.] )
    | (?P<end> [,=\n] )
    """,
    re.VERBOSE | re.DOTALL,
)


class TomlError(ValueError):
    """A text is not TOML. The message has one line."""


class LimitError(TomlError):
    """A text exceeds a limit of this module."""


def parsed(text: str) -> dict[str, Any]:
    """Parse a TOML text. Raises TomlError if it is not TOML, and LimitError if it exceeds a
    limit."""
    _check(text)
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise TomlError(f"it is not valid TOML: {error}") from None


def _check(text: str) -> None:
    """Raise LimitError if a text exceeds a limit."""
    if len(text) > MOST_BYTES:
        raise LimitError(f"it has more than {MOST_BYTES:,} bytes, the most that are read")
    depth = parts = 0
    joined = False  # whether the last token was a dot
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token[0]
        if kind == "bare" and len(word) > _LETTERS:
            raise LimitError(
                f"it has a number or a key of {len(word):,} letters: at most {_LETTERS} are read"
            )
        if kind in ("bare", "word"):
            parts = parts + 1 if joined else 1
        joined = word == "."
        depth += (word in ("[", "{")) - (word in ("]", "}"))
        if parts > _PARTS:
            raise LimitError(f"it has a key of more than {_PARTS} parts, the most that are read")
        if depth > _DEPTH:
            raise LimitError(
                f"it has arrays or tables nested more than {_DEPTH} deep, the most that is read"
            )


# Words of error messages: shortened values, allowed names, and hints about unknown words.


NAME_BYTES = 200  # largest size of a name, which becomes part of file names
_NAME = re.compile(r"\w[\w .,+=-]*")
_brief = reprlib.Repr()
_brief.maxlevel, _brief.maxstring, _brief.maxlong, _brief.maxother = 3, 100, 60, 100


def is_name(text: str) -> bool:
    """Whether a string can be part of a path or command without a special meaning there."""
    return bool(_NAME.fullmatch(text)) and len(text.encode()) <= NAME_BYTES


def brief(value: object) -> str:
    """The `repr` of a value, shortened in the middle if it is long."""
    return _brief.repr(value)


def near(word: str, known: list[str], lists: str = "") -> str:
    """A hint about an unknown word: similar words, all known words, or the command that lists them.

    >>> near("fnoo", ["fno", "pit"]), near("xyz", ["fno", "pit"])
    ('did you mean fno?', 'known: fno, pit')
    >>> near("xyz", ["fno", "pit"], lists="pdegen operators")
    'see pdegen operators'
    """
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    separator = "; " if any("," in name for name in known) else ", "
    return f"see {lists}" if lists else f"known: {separator.join(known)}"


LARGEST = 2**32  # largest count of anything


def _named(text: str) -> str:
    """Letters, digits, spaces and _ . , + = - alone."""
    if not is_name(text):
        raise ValueError(
            "a name begins with a letter or digit and has only letters, digits, spaces and "
            f"_ . , + = -, at most {NAME_BYTES} bytes, got {brief(text)}"
        )
    return text


Name = Annotated[str, AfterValidator(_named)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Coefficient = Annotated[float, Field(gt=0, le=1e20)]
Size = Annotated[float, Field(ge=1e-20, le=1e20)]  # values whose squares fit in float32
InverseLength = Annotated[float, Field(ge=0, le=1e6)]  # for domains of length 1
Tolerance = Annotated[float, Field(ge=1e-15, allow_inf_nan=False)]  # above rounding errors
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=LARGEST)]


class SchemaError(ValueError):
    """A declaration or override is not allowed. The message has one line: the place, the reason and
    the allowed values."""

    exit_status = 2


class Strict(BaseModel):
    """A frozen declaration. It refuses unknown keys, and does not convert between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    resets: ClassVar[tuple[str, ...]] = ()
    """Keys whose replacement removes all other keys of the table."""

    hint: ClassVar[str] = ""
    """What the message about an unknown name says after the known names."""

    @classmethod
    def variants(cls) -> tuple[type[Strict], ...]:
        """The models that an annotation with this model accepts. By default only this one."""
        return (cls,)

    @classmethod
    def parse(cls, content: Mapping[str, Any], where: str) -> Self:
        """Make a declaration from a table. Raises SchemaError if a key is unknown or a value is
        impossible.

        Args:
            content: The content of the declaration.
            where: Name of the declaration in error messages.
        """
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise SchemaError(f"{where}: {explained(error, cls, content)}") from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a declaration from a TOML file. Raises SchemaError if the file cannot be read, or
        the declaration is not valid."""
        return cls.parse(read_toml(path), str(path))

    @classmethod
    def keys(cls, content: Mapping[str, Any] | None = None) -> list[str]:
        """Dotted keys of the model. If `content` is given, only those that it may have."""
        return list(known_keys(cls) if content is None else dict.fromkeys(_keys(cls, content)))

    @classmethod
    def full_key(
        cls, key: str, preferred: Collection[str] = (), content: Mapping[str, Any] | None = None
    ) -> str:
        """The full dotted key that ends with `key`. A top-level table is its own full key.

        Args:
            key: The last parts of a dotted key.
            preferred: If several keys match, those in `preferred` come first, then short ones.
            content: A declaration. The error message suggests only keys that it may have.

        Raises:
            SchemaError: If no key matches, or the match is ambiguous.
        """
        known = cls.keys()
        if any(k.startswith(f"{key}.") for k in known if key in cls.model_fields):
            return key
        matches = [k for k in known if f".{k}".endswith(f".{key}")]
        if not matches and "." in key:  # of the law of a number
            matches = [k for k in _keys(cls, laws=True) if f".{k}".endswith(f".{key}")]
            matches = list(dict.fromkeys(matches))
        matches = [k for k in matches if k in preferred] or matches
        depth = min((k.count(".") for k in matches), default=0)
        matches = [k for k in matches if k.count(".") == depth]
        if not matches:
            table, _, last = key.rpartition(".")
            values = [k for k in known if table and f".{k}".endswith(f".{table}")]
            if values and not any(f".{table}." in f".{k}" for k in known):
                reason = "cannot have a law" if last in _OF_LAWS else f"has no key {last!r}"
                raise SchemaError(f"unknown key {brief(key)}: {values[0]} {reason}")
            raise SchemaError(_unknown_key(key, "", known, cls.keys(content)))
        if len(matches) > 1:
            raise SchemaError(f"key {key!r} is ambiguous: {' or '.join(matches)}")
        return matches[0]

    def resolved_key(self, key: str, given: Mapping[str, Any]) -> str:
        """`full_key` of `key`. If several keys match, keys in this declaration are preferred."""
        return self.full_key(key, list(_leaves(self.model_dump())), self.with_values(given))

    def with_values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The content of this declaration after `given` has replaced values. Not validated."""
        content = self.model_dump()
        for key, value in given.items():
            *parents, last = key.split(".")
            table: Any = content
            for parent in parents:
                table = table.get(parent) if isinstance(table, dict) else None
            if isinstance(table, dict):
                table[last] = deepcopy(value)
        return content

    def replaced(self, changes: Mapping[str, Any], where: str) -> Self:
        """A validated copy in which `changes` replaces values. Keys are full dotted keys.

        A key such as solver.method selects a variant of a table. Its change removes the keys that
        the new variant lacks. A change of a key in `resets` removes the other keys of its table.
        Changes are made in their order, so that later layers of overrides hold. The keys of an
        absent table declare it, and those of a law, with `law` among them, replace a number. An
        empty table changes no key of a table.
        """
        content = self.model_dump()
        for key, value in changes.items():
            *parents, last = key.split(".")
            target = content
            for depth, parent in enumerate(parents, 1):
                present = target.get(parent)
                if present is None or f"{'.'.join(parents[:depth])}.law" in changes:
                    target[parent] = present if isinstance(present, dict) else {}
                elif not isinstance(present, dict):
                    raise SchemaError(f"{where}: {_not_here(type(self), parents, last)}")
                target = target[parent]
            if value == {} and isinstance(target.get(last), dict):
                continue
            variants = _variants_at(type(self), parents)
            if any(last in variant.resets for variant in variants):
                for removed in target.keys() - {"name"}:
                    del target[removed]
            target[last] = deepcopy(value)
            for variant in variants:
                field = variant.model_fields.get(last)
                # the key that selects a variant has one possible value there
                if field is not None and get_args(field.annotation) == (value,):
                    for unknown in target.keys() - variant.model_fields.keys():
                        del target[unknown]
        return self.parse(content, where)


class Extended(Strict):
    """A declaration without the keys `later` where they have their defaults: fingerprints and
    records of earlier versions do not have them."""

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        defaults = {key: type(self).model_fields[key].default for key in self.later}
        table = content(self)
        return {k: value for k, value in table.items() if k not in defaults or value != defaults[k]}


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. Raises SchemaError if it cannot be read, is not TOML, or exceeds the limits
    of `pdegen.schema`."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # reading a pipe would block
            kind = "a folder" if stat.S_ISDIR(mode) else "not a file"
            raise SchemaError(f"cannot read {path}: it is {kind}")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        content = parsed(data.decode("utf-8"))
    except OSError as error:
        raise SchemaError(f"cannot read {message_of(error)}") from None
    except UnicodeDecodeError as error:
        raise SchemaError(f"{path}: byte {error.start} is not UTF-8, as TOML requires") from None
    except TomlError as error:
        raise SchemaError(f"{path}: {error}") from None
    except ValueError as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"cannot read {brief(str(path))}: a path has no NUL character") from None
    if not content:
        raise SchemaError(f"{path} declares nothing: it is empty")
    return content


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def models_in(annotation: Any) -> Iterator[type[Strict]]:
    """The models that a type annotation contains."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield from annotation.variants()
    for argument in get_args(annotation):
        yield from models_in(argument)


def takes_number(annotation: Any) -> bool:
    """Whether an annotation is a union that accepts a number beside tables."""
    parts: tuple[Any, ...] = get_args(annotation)
    return any(part is float or float in get_args(part) for part in parts)


def _not_here(model: type[Strict], parents: list[str], last: str) -> str:
    """The error message for a key below a value that is not a table."""
    key = ".".join([*parents, last])
    if last in _OF_LAWS and (".".join(parents) in known_keys(model)):
        law = f'{".".join(parents)}={{law="uniform", low=..., high=...}}'
        return (
            f"key {brief(key)} belongs to a law, but {parents[-1]} is a number; set the law: {law}"
        )
    return f"key {brief(key)} does not apply here"


def _variants_at(model: type[Strict], path: list[str]) -> list[type[Strict]]:
    """The models of the union declared for the key `path`. Empty if there is only one model."""
    models = [model]
    for name in path:
        fields = [m.model_fields[name] for m in models if name in m.model_fields]
        models = [m for field in fields for m in models_in(field.annotation)]
    return models if len(models) > 1 else []


@cache
def known_keys(model: type[Strict]) -> tuple[str, ...]:
    """All dotted keys of a model. The cache is cleared when an equation is registered."""
    return tuple(dict.fromkeys(_keys(model)))


def _keys(model: type[Strict], content: object = None, laws: bool = False) -> Iterator[str]:
    """Dotted keys of a model; those of all laws of numbers only if `laws` is set."""
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        table = _table(content).get(name)
        number = takes_number(field.annotation)
        if number or not inner:
            yield name
        if number and not (laws or isinstance(table, Mapping)):
            continue  # the keys of a law are known where it is declared
        for variant in [m for m in inner if may_be(m, table)] or inner:
            yield from (f"{name}.{key}" for key in _keys(variant, table, laws))
    yield from (key for key in model.resets if key not in model.model_fields)


def _table(content: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", content) if isinstance(content, Mapping) else {}


def may_be(variant: type[Strict], content: object) -> bool:
    """Whether a table can be read as this variant: each key that has one allowed word, or selects
    a variant, is absent or has an allowed word."""
    table = _table(content)
    for name, field in variant.model_fields.items():
        words: tuple[object, ...] = get_args(field.annotation)
        tag = words and isinstance(words[0], str) and (len(words) == 1 or name in SELECTING)
        if tag and table.get(name, words[0]) not in words:
            return False
    return True


_OF_LAWS = ("law", "low", "high")  # keys of the law of a number
_LISTED = 30  # largest number of keys in an error
_FEW = 20  # so many kinds are all listed in an error; of more, only similar ones are
_MESSAGES = {  # by type of pydantic error; names in braces are from its context
    "missing": "is missing",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    "too_short": "must have {min_length} or more values",
    "too_long": "must have {max_length} or fewer values",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"),
                    "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type",
                     "mapping_type"), "must be a table"),
    "string_type": "must be a string",
    "string_unicode": "must be a string of whole characters",
    "unexpected_keyword_argument": "is not known",
}  # fmt: skip


def explained(
    error: ValidationError,
    model: type[Strict] | None = None,
    content: Mapping[str, Any] | None = None,
) -> str:
    """Describe the first error of pydantic in one line, with its key, allowed values and value.

    Args:
        error: The error.
        model: The validated model. Its keys are suggested if a key is unknown.
        content: The validated declaration. Only keys of its variants are suggested.
    """
    errors = error.errors(include_url=False)
    # report a misspelt key before the key that is missing in consequence
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    kind, context, given = first["type"], first.get("ctx", {}), first["input"]
    path, tag, models = ".".join(map(str, first["loc"])), "", []
    if model is not None:
        path, tag, models = _without_tags(model, first["loc"])
    if kind == "extra_forbidden":
        known, offered = (model.keys(), model.keys(content)) if model is not None else ([], [])
        return _unknown_key(path, tag, known, offered)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        key = context["discriminator"].strip("'")
        tags = [str(tag) for m in models for tag in get_args(m.model_fields[key].annotation)]
        tags = list(dict.fromkeys(tags))
        known = f"known: {', '.join(tags)}"
        if not isinstance(given, Mapping):
            return f"{path}: must be a table, got {brief(given)}"
        if kind == "union_tag_not_found":
            return f"{path}.{key}: is missing, {known}"
        hint = models[0].hint if models else ""
        if len(tags) > _FEW:
            known = near(str(given.get(key)), tags)
        return f"{path}.{key}: unknown {brief(given.get(key))}, {known}{hint}"
    where = f"{path}: " if path else ""
    if kind == "value_error":
        return f"{where}{context['error']}"
    numbers = {k: f"{v:,}" for k, v in context.items() if isinstance(v, int)}
    limits = {**{k: f"{v:g}" if isinstance(v, float) else v for k, v in context.items()}, **numbers}
    words = _MESSAGES.get(kind, first["msg"]).format_map(limits)
    if kind == "float_type" and isinstance(given, Mapping) and "law" in given:
        words = "must be a number, it cannot have a law"
    if words == "must be a list" and isinstance(given, str) and "," in given:
        words = f"must be a list, such as [{given}]"
    if isinstance(given, float) and math.isnan(given):
        words = "must be a number"  # NaN fails any bound, so the first bound would be reported
    return f"{where}{words}" if kind == "missing" else f"{where}{words}, got {brief(given)}"


def _unknown_key(path: str, tag: str, known: list[str], offered: list[str]) -> str:
    if path in known:
        return f"key {brief(path)} does not apply to {tag}"
    last = {k.rsplit(".", 1)[-1]: k for k in reversed(offered)}
    close = difflib.get_close_matches(path.rsplit(".", 1)[-1], list(last), 3, 0.5)
    lists = "pdegen keys" if len(offered) > _LISTED else ""
    hint = near(path, offered, lists)
    if close:
        hint = f"did you mean {' or '.join(last[c] for c in close)}?"
    return f"unknown key {brief(path)}: {hint}"


def _without_tags(
    model: type[Strict], location: tuple[str | int, ...]
) -> tuple[str, str, list[type[Strict]]]:
    """Split the location of a pydantic error."""
    path, models, tag = list[str](), [model], ""
    for part in map(str, location):
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        tagged = [
            m
            for m in models
            if any(part in get_args(f.annotation) for f in m.model_fields.values())
        ]
        if fields:
            models = [m for field in fields for m in models_in(field.annotation)]
        elif tagged:
            tag, models = part, tagged
            continue
        path.append(part)
    return ".".join(path), tag, models


# Overrides of declarations: dotted keys or tables, in Python and as KEY=VALUE on the command
# line.


SELECTING = ("equation", "kind", "law", "method", "name")  # keys that select a variant of a table


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Parse texts ["a.b=value", ...] into overrides {"a.b": value, ...}.

    A table sets its keys, as `flattened`. Keys that select a variant come first, then presets. They
    remove other keys of their table, which may thus be given in any order. The last of several
    texts of a key counts.

    Raises SchemaError if a text is not KEY=VALUE.

    >>> parse_overrides(["model={width=32}", "model.name=fno", "seed=1", "seed=2"])
    {'model.name': 'fno', 'model.width': 32, 'seed': 2}
    """
    overrides = _last(item for text in texts for item in _dotted(*parse_override(text)))
    return dict(sorted(overrides.items(), key=_order))


def flattened(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each table of overrides by its dotted keys. A table thus changes the keys that it
    has, and no others; an empty table stays, and changes nothing.

    Overrides keep their order. Within a table, keys that select a variant come first. The last of
    several values of a key counts.

    >>> flattened({"model": {"width": 32, "name": "fno"}, "training": {"loss": {"name": "h1"}}})
    {'model.name': 'fno', 'model.width': 32, 'training.loss.name': 'h1'}
    """
    return _last(
        item for key, value in overrides.items() for item in sorted(_dotted(key, value), key=_order)
    )


def _dotted(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The dotted keys of a table with their values; of another value, the key itself."""
    if not isinstance(value, Mapping) or not value:
        yield key, value
        return
    for inner, content in cast("Mapping[str, Any]", value).items():
        yield from _dotted(f"{key}.{inner}", content)


def _last(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The last value of each key. The order decides between a key and its abbreviation."""
    overrides = dict[str, Any]()
    for key, value in items:
        overrides.pop(key, None)
        overrides[key] = value
    return overrides


def _order(override: tuple[str, Any]) -> tuple[int, int]:
    """Sort key of an override: keys that remove other keys come first."""
    *tables, last = override[0].split(".")
    if last in SELECTING:
        return 0, len(tables)
    return (1, 0) if last == "preset" else (2, 0)


def parse_override(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE, where VALUE is a TOML value. A bare word is a string.

    >>> parse_override("problem.viscosity=0.01")
    ('problem.viscosity', 0.01)
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise SchemaError(f"an override is KEY=VALUE, got {brief(text)}")
    try:
        content = parsed(f"value = {value}")
    except LimitError as error:
        raise SchemaError(f"{brief(key)}: {error}") from None
    except TomlError:
        return key, value
    if content.keys() != {"value"}:
        raise SchemaError(f"an override is one KEY=VALUE, got {brief(text)}")
    return key, content["value"]


def visible(text: str) -> str:
    """Replace control characters, and characters that reorder or hide text, by visible escapes.

    >>> visible("\\x1b[2Jverified")
    '\\\\x1b[2Jverified'
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or unicodedata.category(letter) == "Zs"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )
