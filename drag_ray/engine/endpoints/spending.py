"""Cost accounting and budget of an endpoint."""

import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from drag_ray.engine.config import EndpointConfig
from drag_ray.engine.endpoints.completion import Tokens
from drag_ray.engine.generate import Usage
from drag_ray.errors import BudgetError
from drag_ray.storage.appended_lines import parse_lines
from drag_ray.storage.file_access import reading, writing

SPENDING_NAME = "spending.jsonl"


@dataclass(frozen=True, slots=True)
class _Line:
    """A reply; `estimated` where the endpoint did not say how many its tokens were."""

    prompt_tokens: Tokens
    completion_tokens: Tokens
    estimated: bool = False


_LINE = TypeAdapter(_Line)


class Spending:
    """A ledger of the tokens of all replies, in a file with a line for each, so that a resumed run knows them.

    Several processes may write to the same file.
    """

    def __init__(self, path: Path, terms: EndpointConfig) -> None:
        self._path = path
        self._terms = terms
        self._num_read_bytes = self._num_read_lines = 0
        self._num_prompt_tokens = self._num_completion_tokens = 0

    def compute_cost(self) -> float:
        """The price of all replies, those that other processes were given among them, in the currency of the prices."""
        self._read_on()
        return self._terms.compute_cost(self._num_prompt_tokens, self._num_completion_tokens)

    def add(self, usage: Usage, *, estimated: bool = False) -> None:
        """Write down a reply. Raises ArtifactError where it cannot be written."""
        line = json.dumps(asdict(_Line(usage.num_prompt_tokens, usage.num_completion_tokens, estimated))) + "\n"
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                num_written = os.write(handle, line.encode())  # at once, so that no other process writes within it
            finally:
                os.close(handle)
            if num_written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def check(self) -> None:
        """Refuse another request once the budget is spent. Raises BudgetError: says what was spent."""
        if not self._terms.budget:
            return
        cost = self.compute_cost()
        if cost >= self._terms.budget:
            raise BudgetError(
                f"the replies of {self._terms.address} have cost {cost:.4g}, and the budget is {self._terms.budget:.4g}. "
                "Finished work is kept: run the same command with a larger endpoint.budget to continue."
            )

    def _read_on(self) -> None:
        """Add what was written since, but for lines that are none: what these replies cost is not known."""
        if not self._path.is_file():
            return
        with reading(self._path), self._path.open("rb") as stream:
            stream.seek(self._num_read_bytes)
            added = stream.read()
        whole = added[: added.rfind(b"\n") + 1]
        lines = whole.splitlines()
        for reply in parse_lines(self._path, lines, _LINE, self._num_read_lines + 1):
            self._num_prompt_tokens += reply.prompt_tokens
            self._num_completion_tokens += reply.completion_tokens
        self._num_read_bytes += len(whole)
        self._num_read_lines += len(lines)
