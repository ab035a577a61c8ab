"""A server that speaks S3 (moto's, over HTTP)."""

from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def serve_s3() -> Iterator[str]:
    """The server's address, host and port."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"{host}:{port}"
    finally:
        server.stop()


def make_place(address: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a place in a new bucket; the keys are where the platform's own tools look for them, and not in the URI."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-a-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-a-test")
    boto3.client("s3", endpoint_url=f"http://{address}", region_name="us-east-1").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/runs/mine?region=us-east-1&scheme=http&endpoint_override={address.replace(':', '%3A')}"
