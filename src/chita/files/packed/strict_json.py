"""JSON from a file that nobody vouches for."""

from __future__ import annotations

import json
from typing import Any

from chita.errors import ChitaError


def parse(content: bytes, what: str) -> Any:
    """The JSON value; a key that is there twice is an error, as is anything that is no JSON.

    Args:
        content: UTF-8.
        what: it is, for the message.
    """
    try:
        return json.loads(content.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ChitaError(f"{what} is no JSON ({error})") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found
