"""Adapters that are loaded while the endpoint runs: which names and folders a request may give."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import read_record
from drag_ray.engine.models.adapter import BaseModel, check_adapter_fits, check_adapter_writes, read_rank
from drag_ray.errors import DataError, TrainError
from drag_ray.serve.access.limits import RefusalError
from drag_ray.serve.config import ADAPTER_NAME
from drag_ray.serve.search.index_origin import describe_other_index


@dataclass(frozen=True)
class LoadRequest:
    """An adapter that may be loaded, from the folder in which it really lies.

    Attributes:
        replaces: whether it may take the place of another one of its name.
        warning: what is to be said of it.
    """

    name: str
    path: str
    replaces: bool
    warning: str = ""


@dataclass(frozen=True)
class AdapterFolders:
    """The folders from which adapters may be loaded.

    Attributes:
        folders: absolute, without symbolic links.
        base: the model that the adapters must be made for.
        base_name: its name in requests, which no adapter may take.
        host: the endpoint's own agent.
        max_rank: the highest that engines have room for.
        index_fingerprint: of the index that is served; empty where there is none.
    """

    folders: tuple[str, ...]
    base: BaseModel
    base_name: str
    host: AgentConfig
    max_rank: int
    index_fingerprint: str = ""

    def check(self, body: dict[str, Any]) -> LoadRequest:
        """The checked request to load an adapter.

        Raises:
            RefusalError: the name or the folder cannot be, the adapter does not fit the base model, or it says in no readable
                way how it is asked.
        """
        name, path, replaces = body.get("lora_name"), body.get("lora_path"), body.get("load_inplace", False)
        if not isinstance(name, str) or not isinstance(path, str) or not isinstance(replaces, bool):
            raise RefusalError(
                400, "lora_name and lora_path must be strings, and load_inplace, where it is given, true or false."
            )
        if not re.fullmatch(ADAPTER_NAME, name) or name == self.base_name:
            raise RefusalError(400, f"lora_name {name[:80]!r}: letters, digits, `_`, `.` and `-`, and not the base model's name.")
        folder = self._resolve(path)
        try:
            check_adapter_writes(folder)
            check_adapter_fits(self.base, folder)
            rank = read_rank(folder)
            record = read_record(folder, self.host)
        except (TrainError, DataError) as error:
            raise RefusalError(400, str(error)) from None
        if rank > self.max_rank:
            raise RefusalError(400, f"lora_path {path[:200]!r}: has rank {rank}, and serve.max_lora_rank is {self.max_rank}.")
        other = describe_other_index(record.index_fingerprint, self.index_fingerprint) if record else ""
        return LoadRequest(name, str(folder), replaces, f" It was trained with {other}." if other else "")

    def _resolve(self, path: str) -> Path:
        try:
            folder = Path(path).resolve()
        except (OSError, ValueError, RuntimeError):  # a loop of links, a zero byte
            folder = Path()
        # One answer for all that lies outside, so that nobody learns what is there.
        if not any(folder.is_relative_to(allowed) for allowed in self.folders):
            raise RefusalError(403, f"lora_path {path[:200]!r} lies in none of the folders of serve.adapter_dirs.")
        return folder
