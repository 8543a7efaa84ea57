"""An S3 server on loopback that fails, loses answers, and holds requests of one client until they are let go."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SECRET = "wJalrXUtnFEMI-not-a-real-one"
KEY = "AKIDEXAMPLE"
RETRIES = {"max_attempts": 2, "mode": "standard"}


class Request(NamedTuple):
    """What a client asks for."""

    method: str
    path: str
    query: str
    client: str  # its access key

    @property
    def kind(self) -> str:
        """Method, and what it is about: a listing, a deletion of many, or the first name of a key in a model store."""
        if "list-type" in self.query:
            return f"{self.method} list"
        if "delete" in self.query:
            return f"{self.method} delete"
        rest = self.path.partition("model.zarr/")[2] or "bucket"
        first = re.sub("-.*", "", rest.split("/")[0])
        last = rest.rsplit("/", 1)[-1]
        return f"{self.method} {first}" + (" chunk" if last.startswith("c.") or last.endswith(".shard") else "")


Rule = Callable[[Request], Any]


def nothing(request: Request) -> None:
    """Requests are answered as they should be."""


class FaultyServer:
    """A moto server; `rule` says what happens to a request.

    "fail": 503 and nothing done; "lost": done, but the answer is a 500; anything else: answered as it should be.
    """

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Handler(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are used again

        self.app = DomainDispatcherApplication(create_backend_app)
        self.rule: Rule = nothing
        self.server = make_server("127.0.0.1", 0, self.answer, threaded=True, request_handler=Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Any:
        client = re.search("Credential=([^/]*)/", environment.get("HTTP_AUTHORIZATION", ""))
        names = (environment[name] for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING"))
        what = self.rule(Request(*names, client[1] if client else ""))
        if what == "fail":
            start("503 Service Unavailable", [("Content-Type", "application/xml")])
            return [b"<Error><Code>ServiceUnavailable</Code><Message>try again</Message></Error>"]
        if what == "lost":
            list(self.app(environment, lambda *arguments: None))
            start("500 Internal Server Error", [("Content-Type", "application/xml")])
            return [b"<Error><Code>InternalError</Code><Message>lost</Message></Error>"]
        return self.app(environment, start)

    def options(self, key: str = KEY, retries: dict[str, Any] | None = None) -> dict[str, Any]:
        """Storage options of a client."""
        wanted = RETRIES if retries is None else retries
        return {"key": key, "secret": SECRET, "endpoint_url": self.url, "config_kwargs": {"retries": wanted}}

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()


def fetch(url: str, target: Path) -> Path:
    """What a server of this process holds below an address, as a folder: checks read that without requests."""
    from moto.s3.models import s3_backends

    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    (objects,) = (place.buckets[bucket].keys for account in s3_backends.values() for place in account.values())
    for name in [name for name in objects if name.startswith(f"{prefix}/")]:
        path = target / name[len(prefix) + 1 :]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(objects[name].value)
    return target


def drop(url: str, options: dict[str, Any]) -> None:
    """Remove all below an address: a listing takes as long as the bucket is full."""
    import s3fs

    s3fs.S3FileSystem(use_listings_cache=False, **options).rm(url, recursive=True)


class Watch:
    """A rule that counts requests and does something to the n-th; it is never in doubt whether it struck."""

    def __init__(self, at: int = 0, what: Callable[[Request], Any] | str = "", client: str = "") -> None:
        self.at, self.what, self.client = at, what, client
        self.kinds: list[str] = []
        self.struck: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Any:
        if self.client and request.client != self.client:
            return None
        with self._lock:
            self.kinds.append(request.kind)
            hit = len(self.kinds) == self.at
            if hit:
                self.struck.append(request.kind)
        if not hit:
            return None
        return self.what(request) if callable(self.what) else self.what
