"""Credentials in options and addresses, and how they stay out of words and records."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from ..errors import PairsymError
from .storage import AZURE, is_local

_SECRET = re.compile("key|secret|token|password|passwd|credential|account|sas|connection_string", re.IGNORECASE)
_INSIDE = re.compile("(?:AccountKey|SharedAccessSignature|sig)=([^;&]+)")  # of a connection string or a signed query


def without_credentials(url: str) -> str:
    """An address fit for messages and records.

    >>> without_credentials("ftp://me:secret@host/plays.zarr?token=abc")
    'ftp://host/plays.zarr'
    >>> without_credentials("abfs://container@account.dfs.core.windows.net/plays.zarr")
    'abfs://container@account.dfs.core.windows.net/plays.zarr'
    """
    if is_local(url):
        return url
    protocol, rest = url.split("://", 1)
    host, slash, path = rest.partition("?")[0].partition("/")
    host = host if _names_container(protocol, host) else host.rpartition("@")[2]
    return f"{protocol}://{host}{slash}{path}"


def _names_container(protocol: str, host: str) -> bool:
    """Whether what stands before an @ is a container, not a user and a password."""
    return protocol in AZURE and ":" not in host.rpartition("@")[0]


def hide(text: str, addresses: Iterable[str], options: dict[str, Any]) -> str:
    """A text without any credential of addresses and options.

    >>> hide("no such file: https://host/a.csv?token=abcd", ["https://host/a.csv?token=abcd"], {})
    'no such file: https://host/a.csv?***'
    """
    secrets = _of_options(options) + [secret for address in addresses for secret in _of_address(address)]
    for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


@contextmanager
def hidden(sources: Iterable[Any], options: dict[str, Any]) -> Iterator[None]:
    """Keep the credentials of sources out of what is said about them."""
    addresses = [os.fspath(source) for source in sources if isinstance(source, (str, os.PathLike))]
    try:
        yield
    except PairsymError as error:
        text = hide(str(error), addresses, options)
        if text == str(error):
            raise
        raise type(error)(text) from None


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def _of_options(options: Any, wanted: bool = False) -> list[str]:
    """Values of options whose name says that they are credentials, also nested ones."""
    if isinstance(options, dict):
        return [
            s for name, value in options.items() for s in _of_options(value, wanted or bool(_SECRET.search(str(name))))
        ]
    if isinstance(options, (list, tuple)):
        return [s for value in options for s in _of_options(value, wanted)]
    if not wanted or not isinstance(options, (str, bytes)) or len(options) <= 2:
        return []
    return [str(options), *_INSIDE.findall(str(options))]


def _of_address(address: str) -> list[str]:
    if is_local(address):
        return []
    protocol, rest = address.split("://", 1)
    host = rest.split("/", 1)[0]
    user = "" if _names_container(protocol, host) else host.rpartition("@")[0]
    query = rest.partition("?")[2]
    values = [part.partition("=")[2] for part in re.split("[&;#]", query)]
    return [part for part in (*user.split(":"), query, *values) if len(part) > 2]
