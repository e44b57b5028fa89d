"""Where the columns of A live."""

from chita.storage.held import HeldMatrix, HeldTarget
from chita.storage.shared import SharedTarget
from chita.storage.target import Store

__all__ = ["HeldMatrix", "HeldTarget", "SharedTarget", "Store"]
