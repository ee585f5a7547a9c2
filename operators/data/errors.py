"""The error for unusable data, and the formatting of its message."""


class DataError(ValueError):
    """A store is damaged or does not fit the request. The message is one line."""

    exit_status = 2


def one_line(error: BaseException) -> str:
    r"""The message of an error, joined into one line.

    >>> one_line(ValueError("no such\n  codec"))
    'no such codec'
    """
    return " ".join(str(error).split())
