"""The package's error."""


class ParallelError(Exception):
    """A rule of a parallel mode is broken; the message says which, what was got, and what to do."""
