"""Compiled code on disk that processes may write and read at the same time."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash
from numba.core.caching import IndexDataCacheFile

DIGEST = 16  # bytes


class KeptCode(IndexDataCacheFile):
    """A file for each kernel and types of its arguments, which says what it is.

    Numba itself numbers such files in an index. Two processes that read the index before either has written it take
    the same number, and from then on calls with float32 find code for float64: a TypeError where sizes differ, wrong
    numbers where they do not. A damaged file ends the program there; here it is compiled again.
    """

    def save(self, key: Any, data: Any) -> None:
        """Keep the code of some types; where it cannot be kept it is compiled again next time."""
        payload = self._dump((self._whole(key), data))
        with suppress(OSError), self._open_for_write(str(self._path(key))) as file:
            file.write(xxhash.xxh3_128_digest(payload) + payload)

    def load(self, key: Any) -> Any:
        """The code of some types, or None."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        digest, payload = content[:DIGEST], content[DIGEST:]
        if digest != xxhash.xxh3_128_digest(payload):
            return None
        found, data = pickle.loads(payload)
        return data if found == self._whole(key) else None

    def _whole(self, key: Any) -> tuple[Any, ...]:
        """All that code depends on: numba's version, its source, and numba's key of types and processor."""
        return self._version, self._source_stamp, key

    def _path(self, key: Any) -> Path:
        name = xxhash.xxh3_128_hexdigest(repr(self._whole(key)).encode())
        return Path(self._cache_path) / f"{self._index_name.removesuffix('.nbi')}.{name}.nbc"


def keep_by_types(kernel: Any) -> None:
    """Have the compiled code of a cached kernel kept so, where there is a place for it.

    An AttributeError or a TypeError says that this numba keeps code in some other way.
    """
    cache = kernel._cache
    save, place = cache.save_overload, (cache.cache_path, cache._impl.filename_base)
    kept = KeptCode(*place, cache._impl.locator.get_source_stamp())
    if not isinstance(cache._cache_file, IndexDataCacheFile):
        raise TypeError(f"{kernel} keeps its code in {cache._cache_file}")
    cache._cache_file = kept

    def save_if_possible(*args: Any) -> None:
        with suppress(OSError):  # of a full disk, or of a folder that has gone
            save(*args)

    cache.save_overload = save_if_possible
