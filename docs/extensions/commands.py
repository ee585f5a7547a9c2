"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from pipelines.cli.common import EXAMPLES, app


def page() -> str:
    """Every command with its arguments and options, in Markdown."""
    return "\n".join(["# Commands\n", f"{app.info.help}\n", STATUS, *_described()])


STATUS = """Every command has `--help`. Exit status: 0 success, 1 the job failed, 2 a wrong request
(one line says what, where, and what is allowed), 130 interrupted.
"""


def _described() -> Iterator[str]:
    import pipelines.cli  # noqa: F401 (its modules add the commands)

    root: Any = typer.main.get_command(app)
    for name, command in sorted(_commands(root, "pdegen")):
        yield f"## {name}\n"
        yield f"{_paragraphs(command.help or '')}\n"
        parameters = [one for one in command.params if one.name != "help" and not one.hidden]
        arguments = [one for one in parameters if one.param_type_name == "argument"]
        options = [one for one in parameters if one.param_type_name == "option"]
        usage = [_place(one) for one in arguments]
        yield f"```text\n{' '.join([name, *usage, *(['[OPTIONS]'] if options else [])])}\n```\n"
        if parameters:
            yield "| argument or option | default | meaning |\n|---|---|---|"
        for one in arguments:
            yield f"| `{_place(one)}` | | {_cell(one.help or '')} |"
        for one in options:
            yield f"| {_names(one)} | {_default(one)} | {_cell(one.help or '')} |"
        yield ""
        examples = "\n".join(EXAMPLES[name.removeprefix("pdegen ")])
        yield f"```text\n{examples}\n```\n"


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _place(parameter: Any) -> str:
    """Placeholder of a value in the usage line: NAME, or NAME... for several values."""
    word = parameter.metavar or parameter.name.rstrip("_").upper()
    return f"{word}..." if parameter.nargs == -1 else word


def _names(option: Any) -> str:
    names = ", ".join(f"`{one}`" for one in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} `{_place(option)}`"


def _default(option: Any) -> str:
    if option.required:
        return "required"
    value = option.default
    if value is None or value is False or value in ((), []) or callable(value):
        return ""
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _paragraphs(text: str) -> str:
    """Help as paragraphs; lines that are set in are programs."""
    blocks = inspect.cleandoc(text.replace("\b", "")).split("\n\n")
    return "\n\n".join(
        f"```console\n{inspect.cleandoc(block)}\n```" if block.startswith("  ") else block
        for block in blocks
    )
