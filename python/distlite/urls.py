# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a URL, without urllib where the URL is plain: importing that takes
longer than all else that a process does to join a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from urllib.parse import ParseResult

__all__ = ["PlainUrl", "query_of", "split_url", "unquote_path"]

# Removes what a plain URL may have beside letters and digits.  All else is for urllib:
# what is quoted, a user's name, an address of IPv6, and what has no place in a URL.
_WITHOUT_MARKS = str.maketrans("", "", "-._~,:/?=&")


class PlainUrl:
    """What urllib's ParseResult has for the same URL."""

    __slots__ = ("hostname", "netloc", "path", "port", "query", "scheme")

    def __init__(self, scheme: str, netloc: str, path: str, query: str) -> None:
        self.scheme, self.netloc, self.path, self.query = scheme, netloc, path, query
        host, _, port = netloc.partition(":")
        self.hostname = host.lower() or None
        self.port = int(port) if port else None


def split_url(url: str) -> PlainUrl | ParseResult:
    """Divides a URL into its parts."""
    scheme, mark, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    netloc, slash, path = rest.partition("/")
    _, colon, port = netloc.partition(":")
    has_port = port.isdecimal() and int(port) < 65536
    if (
        mark
        and scheme.isalpha()
        and scheme.islower()
        and has_port == bool(colon)
        and url.isascii()
        and url.translate(_WITHOUT_MARKS).isalnum()
    ):
        return PlainUrl(scheme, netloc, slash + path, query)
    from urllib.parse import urlparse

    return urlparse(url)


def query_of(parts: PlainUrl | ParseResult) -> dict[str, str]:
    """Returns the query's names and values."""
    if isinstance(parts, PlainUrl):
        pairs = (each.partition("=") for each in parts.query.split("&") if each)
        return {name: value for name, _, value in pairs}
    from urllib.parse import parse_qsl

    return dict(parse_qsl(parts.query, keep_blank_values=True))


def unquote_path(path: str) -> str:
    """Returns the path, in which any byte may be written as %xx."""
    if "%" not in path:
        return path
    from urllib.parse import unquote

    return unquote(path, errors="surrogateescape")
