"""The models that an engine serves by name, and how each of them is asked."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from drag_ray.agent.record import AgentRecord, read_record
from drag_ray.serve.adapters.engine_adapters import UseModel
from drag_ray.serve.ingress.limits import refuse_unknown_model


@dataclass(frozen=True)
class ServedModel:
    """A model as requests name it, its adapter (vLLM's `LoRARequest`; None for the base model), and how it is asked."""

    name: str
    adapter: Any
    record: AgentRecord


class ServedModels:
    """The base model and the adapters that are loaded at this moment, by vLLM's own mapping from names to `LoRARequest`s, which
    changes as adapters are loaded.

    `own` says how the base model is asked, and adapters whose folders do not say; `question_weights` are those of models that are
    there from the start, in place of those that they were trained with. Raises DataError where the folder of an adapter says in
    no readable way how it is asked."""

    def __init__(
        self,
        adapters: Mapping[str, Any],
        base_name: str,
        default_name: str,
        own: AgentRecord,
        use_model: UseModel = lambda _: nullcontext(),
        question_weights: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._adapters = adapters
        self.base_name = base_name
        self._default_name = default_name
        self._own = own
        self._use_model = use_model
        self._read: dict[str, ServedModel] = {}
        for name in (base_name, *adapters):
            model = self.choose(name)
            if name in question_weights:
                self._read[name] = replace(model, record=model.record.weigh(question_weights[name]))

    @contextmanager
    def use(self, name: str) -> Generator[ServedModel]:
        """The model of this name, which is not unloaded meanwhile; the default one where it is empty. Raises DataError or
        RefusalError as `choose`."""
        with self._use_model(name or self._default_name):
            yield self.choose(name)

    def choose(self, name: str) -> ServedModel:
        """The model of this name; the default one where it is empty. Raises DataError where the adapter's folder says in no
        readable way how it is asked and RefusalError where none is served by this name."""
        name = name or self._default_name
        adapter = self._adapters.get(name)
        if adapter is None and name != self.base_name:
            raise refuse_unknown_model(name, (self.base_name, *self._adapters))
        known = self._read.get(name)
        # Another adapter may have been loaded by the same name; who takes a folder away does not change how its adapter is asked.
        if known is None or known.adapter is not adapter:
            record = read_record(Path(adapter.lora_path), self._own.agent) if adapter else None
            known = self._read[name] = ServedModel(name, adapter, record or self._own)
        return known
