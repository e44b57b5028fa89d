"""Where the columns of A live."""

from chita.storage.held import HeldMatrix

__all__ = ["HeldMatrix"]
