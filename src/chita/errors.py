"""The one exception type for everything a user can get wrong."""


class ChitaError(ValueError):
    """A user error: the message names the argument, what it got and what would work."""
