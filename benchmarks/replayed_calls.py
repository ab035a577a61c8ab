"""An engine that draws any tokens and replays the calls of a script in their place, so that tools work on real images."""

import dataclasses
import random
import re
import time
from pathlib import Path
from typing import Any

from bench_collect_throughput import TimedEngine

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Request, join_text
from drag_ray.errors import BudgetError

TOOLS = ("search", "grep", "view_page", "crop", "zoom", "rotate", "sharpen", "select_images")
"""What the script calls, a turn each; then it answers."""
NUM_TURNS = len(TOOLS) + 1
_ASKED = re.compile(r"valve\d+")  # as questions of `scripted_collection` have it
_FOUND = re.compile(r"^\[\d+\] (\S+)#(\d+)", re.MULTILINE)
_NAMED = re.compile(r"\bimage_(\d+)\b")
_THOUGHT = "I look at this page again, and then at a part of it. "


def write_reply(turn: int, told: str, seed: int) -> str:
    """The reply of a turn, counted from 0: a call that can be carried out, or the answer.

    Args:
        told: all that the policy has been told, with the word that is asked for and the names of pages and images.
        seed: of the places in images that are looked at.
    """
    [word, *_] = _ASKED.findall(told)
    if turn == 0:
        return get_protocol("tools").render_search(f"{word} pump")  # every page has the other word
    if turn == len(TOOLS):
        return get_protocol("tools").render_answer(word)
    draw = random.Random(seed)
    file, page = draw.choice(_FOUND.findall(told))
    images = [f"image_{number + 1}" for number in range(max(map(int, _NAMED.findall(told)), default=1))]
    left, top = draw.randrange(500), draw.randrange(500)
    arguments: dict[str, dict[str, Any]] = {
        "grep": {"file": file, "text": "pump"},
        "view_page": {"file": file, "page": int(page)},
        "crop": {"image": images[-1], "box": [left, top, left + 400, top + 300]},
        "zoom": {"image": images[0], "x": left, "y": top, "factor": 3},
        "rotate": {"image": images[-1], "degrees": draw.choice((-90, 3, 90))},
        "sharpen": {"image": images[-1], "strength": 1},
        "select_images": {"images": images[-2:]},
    }
    return render_call(TOOLS[turn], arguments[TOOLS[turn]])


class ReplayedCallsEngine(TimedEngine):
    """Draws as many tokens as the reply of the script has, and replies with that and its token ids.

    When `seconds` have passed since the first reply no rollout is begun any more: it is refused as one that cannot be paid for.

    Args:
        thoughts: sentences before each call.
    """

    def __init__(self, config: EngineConfig, images: ImageSource | None, folder: Path, seconds: float, thoughts: int) -> None:
        super().__init__(config, images, str(folder), 1, {})
        self._seconds = seconds
        self._thoughts = _THOUGHT * thoughts
        self._end_s = float("inf")

    def _build_sampling_params(self, request: Request) -> Any:
        params = super()._build_sampling_params(request)
        params.ignore_eos, params.stop = True, []
        return params

    async def __call__(self, request: Request) -> Generation:
        turn = sum(message["role"] == "assistant" for message in request.messages)
        if turn == 0 and time.monotonic() > self._end_s:
            raise BudgetError("the time of this measurement is over")
        told = "\n".join(join_text(message) for message in request.messages if message["role"] != "assistant")
        text = self._thoughts + write_reply(turn, told, request.seed)
        token_ids = tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        drawn = await super().__call__(dataclasses.replace(request, max_tokens=len(token_ids)))
        self._end_s = min(self._end_s, time.monotonic() + self._seconds)
        self._log.flush()
        return dataclasses.replace(drawn, text=text, completion_token_ids=token_ids, completion_logprobs=(), finish_reason="stop")
