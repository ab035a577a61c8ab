"""An engine that replies from a script, for tests of what surrounds an engine."""

import asyncio
from collections.abc import Callable

from drag_ray.engine.generate import Generation, Request


class ScriptedEngine:
    """Replies with `script(request)`. Token ids are the UTF-8 bytes of the texts.

    Args:
        script: from a request to the reply's text; an exception that it raises is raised by the call.
        delay_s: how long each reply takes.
    """

    def __init__(self, script: Callable[[Request], str], delay_s: float = 0.0) -> None:
        self._script = script
        self._delay_s = delay_s
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Generation:
        self.requests.append(request)
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        text = self._script(request)
        prompt = "".join(str(message["content"]) for message in request.messages)
        return Generation(text, tuple(prompt.encode()), tuple(text.encode()), "stop")
