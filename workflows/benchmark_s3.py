"""Sweeps into a model store on S3 (a moto server on this machine): seconds, requests, objects and bytes of commits.

A store with a file for every chunk against one with shards, in turn; the server may wait before it answers, as far
ones do.

python workflows/benchmark_s3.py --pairs 1e6 --latency 0.02 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

import benchmarking

import pairsym_dask as ps
from pairsym_dask.store import cuts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.storage import open_storage

COUNTED = "/requests-so-far"  # asks the server itself


class Server:
    """A moto server that counts requests, and answers each after a while."""

    def __init__(self, latency: float) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Handler(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are used again

            def log_request(self, *_: Any) -> None:
                pass

        self.app, self.latency = DomainDispatcherApplication(create_backend_app), latency
        self.requests: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.server = make_server("127.0.0.1", 0, self.answer, threaded=True, request_handler=Handler)

    def answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Any:
        if environment["PATH_INFO"] == COUNTED:
            start("200 OK", [("Content-Type", "application/json")])
            with self._lock:
                found, self.requests = self.requests, Counter()
            return [json.dumps(found).encode()]
        with self._lock:
            self.requests[environment["REQUEST_METHOD"]] += 1
        time.sleep(self.latency)
        return self.app(environment, start)


def serve(latency: float) -> None:
    """In a process of its own: say the port, and answer until the end."""
    server = Server(latency)
    print(server.server.server_port, flush=True)
    server.server.serve_forever()


def asked(address: str) -> dict[str, int]:
    """Requests since this was asked last, by method."""
    with urllib.request.urlopen(address + COUNTED) as answer:
        found: dict[str, int] = json.loads(answer.read())
    return found


def fit(counts: ps.Counts, url: str, options: dict[str, Any], address: str, arguments: argparse.Namespace) -> Any:
    """A new store at a URL; seconds and requests of each sweep, objects and record of the last one."""
    seconds: list[float] = []
    requests: list[dict[str, int]] = []
    store = ModelStore(url, options)
    store.create(sharded="shards" in url)
    asked(address)

    def look(sweep: int, bound: float, took: float) -> None:
        seconds.append(took)
        requests.append(asked(address))

    model = ps.PairedSymbols(factors=arguments.factors, selection="constant")
    model.fit(
        counts, url, sweeps=arguments.sweeps, storage_options=options, progress=False, threads=arguments.threads,
        callback=look,
    )  # fmt: skip
    last = store.commits()[-1]
    return {
        "seconds": seconds,
        "requests": requests[-1],
        "objects": len(store.storage.keys(last.folder)),
        "record": open_storage(url, options).size(f"commits/{last.sweep:05d}.json"),
        "bound": last.scalar("elbo"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=float, default=300_000)
    parser.add_argument("--items", type=float, default=2000)
    parser.add_argument("--pairs", type=float, default=1e6)
    parser.add_argument("--block", type=int, default=1024, help="users a block: small, so that there are many")
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that the server waits before it answers")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--results", help="folder for the figures as JSON")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    import s3fs

    load = benchmarking.look_at_load()
    cuts.LONG_BLOCK = arguments.block
    command = [sys.executable, __file__, "--serve", str(arguments.latency)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            assert server.stdout is not None
            address = f"http://127.0.0.1:{int(server.stdout.readline())}"
            options = {"key": "key", "secret": "secret", "endpoint_url": address}
            s3fs.S3FileSystem(use_listings_cache=False, **options).mkdir("bucket")
            users, items, pairs = (int(n) for n in (arguments.users, arguments.items, arguments.pairs))
            counts = ps.simulate(f"{folder}/counts.zarr", users=users, items=items, pairs=pairs)
            found: dict[str, list[Any]] = {"files": [], "shards": []}
            for number in range(arguments.rounds):
                for layout, runs in found.items():
                    run = fit(counts, f"s3://bucket/{number}/{layout}.zarr", options, address, arguments)
                    runs.append(run)
                    print(f"  round {number + 1}: {layout}: {run['seconds']}", file=sys.stderr, flush=True)
        finally:
            server.terminate()
    assert len({run["bound"] for runs in found.values() for run in runs}) == 1  # the same bits
    print(
        f"{counts.nnz:,} pairs, blocks of {arguments.block} users, K = {arguments.factors}, "
        f"{arguments.latency} s a request"
    )
    for layout, runs in found.items():
        sweeps = [seconds for run in runs for seconds in run["seconds"][1:]]
        print(
            f"{layout:>7}: {statistics.median(sweeps):.2f} s a sweep ({min(sweeps):.2f} to {max(sweeps):.2f}), "
            f"{runs[-1]['objects']:,} objects, a commit record of {runs[-1]['record']:,} bytes, "
            f"requests {dict(sorted(runs[-1]['requests'].items()))}"
        )
    if arguments.results:
        given = {name: value for name, value in vars(arguments).items() if name not in ("serve", "results")}
        benchmarking.save("s3", {"load": load, "given": given, **found}, arguments.results)


if __name__ == "__main__":
    main()
