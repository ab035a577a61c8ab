"""OpenTelemetry: where spans go, if the user names a place, and how they get there without holding anything up.

Spans leave in batches, from a thread beside the work. While the collector is away they are dropped, and the log says so once.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from drag_ray import __version__
from drag_ray.config import BaseConfig

_SERVICE = "drag_ray"
_TIMEOUT_S = 5
_PATIENCE_S = 1.0
_EVERY_MS = 1_000
_MAX_WAITING = 8_192
"""Spans that wait for the collector; what comes beyond is dropped."""

_logger = logging.getLogger(__name__)


class TelemetryConfig(BaseConfig):
    """Spans of rollouts, model calls and searches, by the GenAI conventions of OpenTelemetry. Nothing is sent by default."""

    endpoint: str = Field(default="", pattern=r"^(https?://[^\s/]+[^\s]*)?$")
    """address of a collector of OTLP over HTTP, for example http://127.0.0.1:4318; empty sends nothing. Headers, such as a
    key, come from the environment variable OTEL_EXPORTER_OTLP_HEADERS"""
    content: bool = False
    """send texts too: prompts with the shown pages, replies, queries and found pages"""


class Telemetry:
    """Sends the spans that its `tracer` begins to a collector."""

    def __init__(self, config: TelemetryConfig, attributes: Mapping[str, str]) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": _SERVICE, "service.version": __version__, **attributes})
        self._provider = TracerProvider(resource=resource)  # not the process's own: vLLM's and Ray's spans are not ours to send
        self._exporter = _build_exporter(config.endpoint)
        self._processor = BatchSpanProcessor(self._exporter, max_queue_size=_MAX_WAITING, schedule_delay_millis=_EVERY_MS)
        self._provider.add_span_processor(self._processor)
        self.tracer = self._provider.get_tracer(_SERVICE, __version__)

    async def deliver(self) -> None:
        """Send what waits. Returns when that is done, or has taken a second; at once where nobody took what was sent before."""
        if self._exporter.is_away:
            return
        sent = asyncio.get_running_loop().run_in_executor(None, self._processor.force_flush, _TIMEOUT_S * 1000)
        await asyncio.wait([sent], timeout=_PATIENCE_S)


def _build_exporter(endpoint: str) -> Any:
    """An exporter over HTTP that says once, and not with each batch, that nobody takes what it sends."""
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Exporter(trace_exporter.OTLPSpanExporter):
        is_away = False

        def export(self, spans: Any) -> Any:
            result = super().export(spans)
            if (result is not SpanExportResult.SUCCESS) != self.is_away:
                self.is_away = not self.is_away
                words = "accepts no spans; they are dropped, and the work continues" if self.is_away else "takes spans again"
                _logger.warning("telemetry.endpoint %s %s", endpoint, words)
            return result

    logging.getLogger(trace_exporter.__name__).setLevel(logging.CRITICAL)
    return Exporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=_TIMEOUT_S)
