"""What the tests of methods share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from chita.methods import BUILT_IN, METHODS, registry


@pytest.fixture
def registry_restored() -> Iterator[None]:
    """Methods that a test registers, and modules that it imports, are gone afterwards."""
    methods, modules = dict(METHODS), set(sys.modules)
    for name in set(METHODS) - set(BUILT_IN):
        del METHODS[name]
    registry._load_entry_points.cache_clear()
    yield
    registry._load_entry_points.cache_clear()
    METHODS.clear()
    METHODS.update(methods)
    for name in set(sys.modules) - modules:
        if not name.startswith(("chita", "torch")):
            del sys.modules[name]
