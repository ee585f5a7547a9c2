"""URL -> a sealed store, once its metadata and coordinates are those that were sealed."""

from pdegen.store.reading import Store, open_sealed


class DataError(ValueError):
    """A store that cannot be read as asked; one line."""

    exit_status = 2


def one_line(error: BaseException) -> str:
    r"""What an error says.

    >>> one_line(ValueError("no such\n  codec"))
    'no such codec'
    """
    return " ".join(str(error).split())


def opened(url: str) -> Store:
    """The store at a URL that fsspec knows, or a path."""
    try:
        return open_sealed(url)
    except (ValueError, OSError) as error:
        raise DataError(one_line(error)) from None
