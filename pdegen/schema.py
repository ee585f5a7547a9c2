"""Strict declarations read from TOML: unknown or impossible keys are errors in one line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class SchemaError(ValueError):
    """A declaration or an override that cannot be; one line: what, where, what is allowed."""


class Strict(BaseModel):
    """A frozen declaration: no unknown keys, no conversion between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    resets: ClassVar[tuple[str, ...]] = ()
    """Keys whose replacement takes all others of the table away: those stand for it as a whole."""

    @classmethod
    def parse(cls, content: Mapping[str, Any], where: str) -> Self:
        """Build from a dictionary; `where` names it in errors.

        Raises:
            SchemaError: On the first unknown key or impossible value.
        """
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise SchemaError(f"{where}: {_explained(cls, error)}") from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a TOML file.

        Raises:
            SchemaError: If it cannot be read, is not TOML, or declares what cannot be.
        """
        return cls.parse(read_toml(path), str(path))

    @classmethod
    def keys(cls) -> list[str]:
        """All dotted keys."""
        return list(dict.fromkeys(_keys(cls)))

    @classmethod
    def full_key(cls, key: str, preferred: Collection[str] = ()) -> str:
        """The dotted key that `key` ends: the one nearest the top, of several a preferred one.

        Raises:
            SchemaError: If there is none (naming the near ones), or more than one.
        """
        known = cls.keys()
        matches = [k for k in known if f".{k}".endswith(f".{key}")]
        matches = [k for k in matches if k in preferred] or matches
        depth = min((k.count(".") for k in matches), default=0)
        matches = [k for k in matches if k.count(".") == depth]
        if not matches:
            last = {k.rsplit(".", 1)[-1]: k for k in reversed(known)}
            close = difflib.get_close_matches(key.rsplit(".", 1)[-1], list(last), 3, 0.5)
            hint = (
                f"did you mean {either([last[c] for c in close])}?" if close else near(key, known)
            )
            raise SchemaError(f"unknown key {key!r}: {hint}")
        if len(matches) > 1:
            raise SchemaError(f"key {key!r} is ambiguous: {either(matches)}")
        return matches[0]

    def own_key(self, key: str) -> str:
        """`full_key`, of several the one that this declaration has a value for."""
        return self.full_key(key, list(_leaves(self.model_dump())))

    def replaced(self, changes: Mapping[str, Any], where: str) -> Self:
        """A copy with other values at full dotted keys, checked as a whole.

        A word that says which kind of thing a table declares, such as solver.method, takes away
        the keys that the new kind does not know; one that `resets` takes away all.
        """
        content = self.model_dump()
        for key, value in changes.items():
            *parents, last = key.split(".")
            target = content
            for parent in parents:
                if not isinstance(target.get(parent), dict):
                    raise SchemaError(f"{where}: key {key!r} does not apply here")
                target = target[parent]
            kinds = _kinds(type(self), parents)
            if any(last in kind.resets for kind in kinds):
                for other in target.keys() - {"name"}:
                    del target[other]
            target[last] = value
            for kind in kinds:
                field = kind.model_fields.get(last)
                # the word of a kind is its one possible value
                if field is not None and get_args(field.annotation) == (value,):
                    for unknown in target.keys() - kind.model_fields.keys():
                        del target[unknown]
        return self.parse(content, where)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        SchemaError: If it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SchemaError(f"{path} is not valid TOML: {error}") from None


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def either(words: list[str]) -> str:
    """Words joined by "or"."""
    return " or ".join(words)


def near(word: str, known: list[str]) -> str:
    """What may have been meant by an unknown word."""
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"did you mean {either(close)}?" if close else f"known: {', '.join(known)}"


def parse_override(text: str) -> tuple[str, Any]:
    """KEY=VALUE, the value as in TOML, a bare word as a string.

    >>> parse_override("problem.viscosity=0.01")
    ('problem.viscosity', 0.01)
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise SchemaError(f"an override is KEY=VALUE, got {text!r}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _models(annotation: Any) -> Iterator[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _kinds(model: type[Strict], path: list[str]) -> list[type[Strict]]:
    """The models of a union at a path; none where there is no choice."""
    models = [model]
    for name in path:
        fields = [m.model_fields[name] for m in models if name in m.model_fields]
        models = [one for field in fields for one in _models(field.annotation)]
    return models if len(models) > 1 else []


def _keys(model: type[Strict]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = list(_models(field.annotation))
        for one in inner:
            yield from (f"{name}.{key}" for key in _keys(one))
        if not inner:
            yield name
    yield from (key for key in model.resets if key not in model.model_fields)


def _explained(model: type[Strict], error: ValidationError) -> str:
    errors = error.errors()
    # a misspelt key comes before the one that is then missing
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    path, tag = _without_tags(model, first["loc"])
    known = model.keys()
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden" and path in known:
        return f"key {path!r} does not apply to {tag}"
    if first["type"] == "extra_forbidden":
        last = {k.rsplit(".", 1)[-1]: k for k in reversed(known)}
        close = difflib.get_close_matches(path.rsplit(".", 1)[-1], list(last), 3, 0.5)
        hint = f"did you mean {either([last[c] for c in close])}?" if close else near(path, known)
        return f"unknown key {path!r}: {hint}"
    if first["type"] in ("missing", "value_error"):
        return f"{path}: {message}" if path else message
    return f"{path}: {message}, got {first['input']!r}"


def _without_tags(model: type[Strict], location: tuple[str | int, ...]) -> tuple[str, str]:
    """The dotted key of a place, where pydantic puts the tag of each discriminated union; and
    the last tag."""
    path, models, tag = [], [model], ""
    for part in map(str, location):
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        if fields:
            models = [one for field in fields for one in _models(field.annotation)]
        elif any(part in get_args(f.annotation) for m in models for f in m.model_fields.values()):
            tag = part
            models = [
                m
                for m in models
                if any(part in get_args(f.annotation) for f in m.model_fields.values())
            ]
            continue
        path.append(part)
    return ".".join(path), tag
