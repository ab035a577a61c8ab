"""A small endpoint of chat completions, which answers as a test tells it."""

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """An answer of the endpoint: a reply, or with another status what is wrong. `seconds` go by before."""

    text: str | None = "<search>rotor</search>"
    status: int = 200
    error: str = "no"
    headers: dict[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"
    prompt_tokens: int = 100
    completion_tokens: int = 10
    seconds: float = 0.0
    message: dict[str, Any] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    """the body, whatever it is, in place of a completion"""

    def to_body(self) -> dict[str, Any]:
        if self.status != 200:
            return {"error": {"message": self.error, "type": "invalid_request_error", "code": None}}
        message = {"role": "assistant", "content": self.text, **self.message}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "teacher",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason, **self.choice}],
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.completion_tokens,
                "total_tokens": self.prompt_tokens + self.completion_tokens,
            },
        }


@dataclass
class ChatServer:
    """An endpoint that listens; `asked` holds the bodies that it was sent, `keys` their authorization."""

    address: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    most_at_once: int = 0


@contextlib.contextmanager
def serve_chat(answer: Callable[[dict[str, Any], int], Answer], host: str = "127.0.0.1") -> Iterator[ChatServer]:
    """An endpoint on this machine. `answer` is given a request and its number, from 0."""
    served, lock, delay = ChatServer(), threading.Lock(), threading.Event()
    at_once = 0

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal at_once
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                served.asked.append(body)
                served.keys.append(self.headers["Authorization"])
                number = len(served.asked) - 1
                at_once += 1
                served.most_at_once = max(served.most_at_once, at_once)
            chosen = answer(body, number)
            delay.wait(chosen.seconds)
            with lock:
                at_once -= 1
            data = json.dumps(chosen.to_body()).encode() if chosen.raw is None else chosen.raw
            self.send_response(chosen.status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **chosen.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    with http.server.ThreadingHTTPServer((host, 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        served.address = f"http://{host}:{listening.server_port}/v1"
        try:
            yield served
        finally:
            listening.shutdown()
