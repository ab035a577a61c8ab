"""The cost of a stage's machines: noted while it runs, over all its starts, and the end of what it may cost."""

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, model_validator

from drag_ray.config import BaseConfig
from drag_ray.errors import ArtifactError, BudgetError, ConfigError
from drag_ray.storage.appended_lines import append_line, read_lines

_logger = logging.getLogger(__name__)

LEDGER_NAME = "ledger.jsonl"
INTERVAL_S = 30.0
"""between looks at what the cluster has, the most that a kill leaves out"""
_HOUR_S = 3600
_MOST = 1e9
"""of seconds between two looks, and of machines; more is a mistake"""
_STOP = signal.SIGUSR2
"""What interrupts the main thread. Ctrl-C's own signal is ignored where a shell has started the stage in the background."""


class CostConfig(BaseConfig):
    """The prices of machines, in whichever currency, and how much a stage may cost."""

    gpu_hour: float = Field(default=0.0, ge=0)
    """price of one GPU of the cluster for an hour, used or not; 0: unknown"""
    cpu_hour: float = Field(default=0.0, ge=0)
    """price of one CPU core of the cluster for an hour, used or not; 0: unknown, or included in the GPU's"""
    budget: float = Field(default=0.0, ge=0)
    """largest machine cost of a stage, over all its starts; then it stops, and continues with a larger budget. 0: no limit"""

    @property
    def has_prices(self) -> bool:
        """True if something is reckoned."""
        return bool(self.gpu_hour or self.cpu_hour)

    @model_validator(mode="after")
    def _budget_has_prices(self) -> "CostConfig":
        if self.budget and not self.has_prices:
            raise ValueError(f"budget {self.budget:g} without a price: set cost.gpu_hour or cost.cpu_hour too")
        return self


Measured = Annotated[float, Field(ge=0, le=_MOST)]


@dataclass(frozen=True, slots=True)
class _Line:
    """The resources that a cluster had for some seconds."""

    seconds: Measured
    gpus: Measured
    cpus: Measured


_LINE = TypeAdapter(_Line)


class Ledger:
    """Notes what the cluster has while a stage runs, in a file that starts after a kill go on with; nothing without prices. Use
    it as a context manager.

    When the budget is spent, the main thread is interrupted as by Ctrl-C, after which every stage can go on. Entering raises
    ConfigError where there is a budget and this is not the main thread, and ArtifactError where the file cannot be read; lines
    that are none are passed over, with a warning. Where earlier starts, or this one, have cost the budget or more, a BudgetError
    is raised."""

    def __init__(self, path: Path, config: CostConfig, count_machines: Callable[[], tuple[int, int]]) -> None:
        self._path, self._config, self._count_machines = path, config, count_machines
        self._gpu_s = self._cpu_s = 0.0
        self._ended = threading.Event()
        self._is_interrupted = False

    def __enter__(self) -> Self:
        if self._config.budget and threading.current_thread() is not threading.main_thread():
            raise ConfigError(
                "cost.budget works only for a stage that runs in the main thread: leave it out, or run the stage there."
            )
        if self._config.has_prices:
            self._read()
            self._check()
            if self._config.budget:
                self._earlier_handler = signal.signal(_STOP, _interrupt)
            self._looked_at = time.monotonic()
            self._thread = threading.Thread(target=self._watch, name="ledger", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._config.has_prices:
            self._ended.set()
            self._thread.join()
            if self._config.budget:
                signal.signal(_STOP, self._earlier_handler)
        if kind is not None and self._is_interrupted:
            self._check()

    def summarise(self) -> dict[str, float]:
        """GPU hours, hours of CPU cores and their cost over all starts, after the context; nothing without prices."""
        if not self._config.has_prices:
            return {}
        hours = {"gpu_hours": self._gpu_s / _HOUR_S, "cpu_hours": self._cpu_s / _HOUR_S, "cost": self._compute_cost()}
        return {name: round(value, 6) for name, value in hours.items()}

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._note()
            if self._is_spent() and not self._is_interrupted:
                self._is_interrupted = True
                signal.pthread_kill(threading.main_thread().ident or 0, _STOP)
        self._note()

    def _read(self) -> None:
        for line in read_lines(self._path, _LINE):
            self._add(line.seconds, line.gpus, line.cpus)

    def _note(self) -> None:
        now = time.monotonic()
        seconds, self._looked_at = now - self._looked_at, now
        num_gpus, num_cpus = self._count_machines()
        line = {"seconds": round(seconds, 3), "gpus": float(num_gpus), "cpus": float(num_cpus)}
        self._add(**line)
        try:
            append_line(self._path, line)
        except ArtifactError as error:  # the stage itself will meet it
            _logger.warning(f"{self._path}: what the machines cost is not noted: {error}")

    def _add(self, seconds: float, gpus: float, cpus: float) -> None:
        self._gpu_s += seconds * gpus
        self._cpu_s += seconds * cpus

    def _compute_cost(self) -> float:
        return (self._gpu_s * self._config.gpu_hour + self._cpu_s * self._config.cpu_hour) / _HOUR_S

    def _is_spent(self) -> bool:
        return 0 < self._config.budget <= self._compute_cost()

    def _check(self) -> None:
        if self._is_spent():
            raise BudgetError(
                f"the machines of this stage have cost {self._compute_cost():.4g}, and cost.budget is {self._config.budget:.4g}. "
                "Finished work is kept: run the same command with a larger budget to continue."
            )


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
