"""A collector that takes spans as OTLP over HTTP, on a port of this machine."""

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse


class Receiver:
    """The spans that have come, and the attributes of their sender."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Any] = []
        self.sender: dict[str, Any] = {}

    def take(self, body: bytes) -> None:
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.sender = read_attributes(sent.resource)
            self.spans += [span for scope in sent.scope_spans for span in scope.spans]

    def list_children(self, parent: Any) -> list[Any]:
        """The spans within another one, in the order of their beginnings."""
        children = [span for span in self.spans if span.parent_span_id == parent.span_id]
        return sorted(children, key=lambda span: span.start_time_unix_nano)

    def list_roots(self) -> list[Any]:
        return [span for span in self.spans if not span.parent_span_id]


def read_attributes(described: Any) -> dict[str, Any]:
    """The attributes of a span or a sender, lists as lists."""

    def read(value: Any) -> Any:
        kind = value.WhichOneof("value")
        return [read(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)

    return {attribute.key: read(attribute.value) for attribute in described.attributes}


@contextmanager
def receive_spans() -> Generator[Receiver]:
    """Listen until the block ends."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            receiver.take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
