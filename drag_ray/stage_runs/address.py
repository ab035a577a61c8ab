"""Address of a stage's folder in a run: `collect`, `finetune/dpo` (one of several of a kind), `rounds/2/collect`."""

import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][\w-]*")


@dataclass(frozen=True, slots=True)
class Address:
    """A stage, the name of this instance of it, and the folder within the run that it is in; the last two may be empty."""

    stage: str
    name: str = ""
    scope: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.scope, self.stage, self.name) if part)

    @property
    def command(self) -> str:
        """Its command line."""
        scope, name = f" --scope {self.scope}" if self.scope else "", f" --name {self.name}" if self.name else ""
        return f"python jobs/{self.stage}.py{scope}{name}"

    def locate(self, run_dir: Path) -> Path:
        """Its folder."""
        return run_dir / str(self)


def is_name(text: str) -> bool:
    """True if this can be a part of an address: letters, digits, `_` and `-`, so that it never leads out of the run."""
    return bool(_NAME.fullmatch(text))


def parse_address(text: str, stage: str) -> Address:
    """The address of an instance of a stage. Raises ValueError where it is none of this stage."""
    parts = text.split("/")
    if parts.count(stage) != 1 or parts.index(stage) < len(parts) - 2 or not all(map(is_name, parts)):
        raise ValueError(f"{text!r} is no {stage} stage of a run: expected {stage}, {stage}/NAME or SCOPE/{stage}")
    place = parts.index(stage)
    return Address(stage, "/".join(parts[place + 1 :]), "/".join(parts[:place]))
