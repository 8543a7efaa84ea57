"""Google Cloud Storage and Azure on loopback: emulators, with and without the condition that commits need."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
import threading
from functools import partial
from http.server import HTTPServer
from typing import Any

import pytest

# gcsfs would ask for the kind of a bucket by gRPC, which no emulator speaks, and wait a minute before each request.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
ACCOUNT = "devstoreaccount1"  # name and key are those that azurite has for everybody
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Google:
    """The gcp-storage-emulator, which ignores `ifGenerationMatch`; with `heeds` that is added to it here.

    Requests are answered one after another, so that nothing comes between looking and writing.
    """

    kind = "gs"
    url = "gs://bucket"

    def __init__(self, heeds: bool = True) -> None:
        pytest.importorskip("gcsfs")
        pytest.importorskip("gcp_storage_emulator")
        from gcp_storage_emulator.handlers.buckets import create_bucket
        from gcp_storage_emulator.server import RequestHandler
        from gcp_storage_emulator.storage import Storage

        class ThereAlready(Exception):
            pass

        class Heeding(Storage):
            absent = False

            def create_file(self, bucket_name: str, file_name: str, *arguments: Any) -> None:
                if self.absent and file_name in self.objects.get(bucket_name, {}):
                    raise ThereAlready
                super().create_file(bucket_name, file_name, *arguments)

        class Handler(RequestHandler):
            def handle_one_request(handler) -> None:
                try:
                    super().handle_one_request()
                except ThereAlready:
                    handler.refuse(412, "conditionNotMet")

            def parse_request(handler) -> bool:
                found: bool = super().parse_request()
                storage.absent = heeds and "ifGenerationMatch=0" in handler.path
                if found and self.refusing:
                    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
                    handler.refuse(self.refusing, "no permission")
                    return False
                return found

            def refuse(handler, status: int, message: str) -> None:
                body = json.dumps({"error": {"code": status, "message": message}}).encode()
                handler.send_response(status)
                handler.send_header("Content-Length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)

        class Server(HTTPServer):
            request_queue_size = 128

            def handle_error(self, *request: Any) -> None:
                """Clients hang up without reading bodies that they do not want."""

        logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        self.refusing = 0  # the status that all requests are answered with
        storage = Heeding(use_memory_fs=True)
        create_bucket("bucket", storage)
        self.server = Server(("127.0.0.1", 0), partial(Handler, storage))
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.options: dict[str, Any] = {
            "endpoint_url": f"http://127.0.0.1:{self.server.server_port}",
            "token": "anon",
        }

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Azure:
    """npm's azurite, in a process of its own, with everything in memory."""

    kind = "az"
    url = "az://bucket"

    def __init__(self) -> None:
        adlfs = pytest.importorskip("adlfs")
        command = shutil.which("azurite-blob")
        if command is None:
            pytest.skip("azurite is not installed (npm install -g azurite)")
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [command, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent",
             "--blobHost", "127.0.0.1", "--blobPort", "0"],
            cwd=self.folder.name, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        listens = (re.search(r"successfully listens on (http://\S+)", line) for line in self.process.stdout)
        found = next(filter(None, listens))
        self.options: dict[str, Any] = {
            "connection_string": f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint={found[1]}/{ACCOUNT};"
        }
        adlfs.AzureBlobFileSystem(**self.options).mkdir("bucket")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.folder.cleanup()
