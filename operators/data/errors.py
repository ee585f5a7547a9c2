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


class ResolutionError(DataError):
    """A store has no subsample with the requested number of points.

    Args:
        message: One line.
        possible: A number of points along the first axis that the store has.
    """

    def __init__(self, message: str, possible: int) -> None:
        super().__init__(message)
        self.possible = possible
