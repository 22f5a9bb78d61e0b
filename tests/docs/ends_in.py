"""The helper that a page's program imports to check a snippet marked `raises=`."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ends_in(name: str) -> Iterator[None]:
    """Raise AssertionError unless the block ends in an exception of the class called `name`.

    By name, for a page may show an exception that it never imports.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != name:
            raise
    else:
        raise AssertionError(f"the snippet was to end in {name}, but it ended well")
