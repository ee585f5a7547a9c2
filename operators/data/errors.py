"""Errors of data."""


class DataError(ValueError):
    """A store that is damaged or does not fit the request; one line."""

    exit_status = 2


def one_line(error: BaseException) -> str:
    r"""The message of an error on one line.

    >>> one_line(ValueError("no such\n  codec"))
    'no such codec'
    """
    return " ".join(str(error).split())
