"""Calls of Ray's programs from outside of Ray, with a token or without."""

import grpc


def ask_grpc(port: int, method: str, token: str = "") -> grpc.StatusCode:
    """How an empty call of a method on the loopback address ends; OK if it was answered."""
    metadata = [("authorization", f"Bearer {token}")] if token else None
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(f"/ray.rpc.{method}")(b"", timeout=10, metadata=metadata)
        except grpc.RpcError as error:
            return error.code()  # pyright: ignore[reportAttributeAccessIssue]
    return grpc.StatusCode.OK
