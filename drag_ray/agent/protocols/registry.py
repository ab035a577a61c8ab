"""The action formats that there are."""

from typing import TYPE_CHECKING, Literal

from drag_ray.agent.protocols import ActionProtocol
from drag_ray.agent.protocols.function_calls import FunctionCallsProtocol
from drag_ray.agent.protocols.ranking import RankingProtocol
from drag_ray.agent.protocols.tags import TagsProtocol
from drag_ray.errors import ConfigError

_PROTOCOLS: tuple[ActionProtocol, ...] = (TagsProtocol(), FunctionCallsProtocol())
PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS}
"""Those that an agent can be told to write its searches and answers in."""
KNOWN_PROTOCOLS = PROTOCOLS | {RankingProtocol.name: RankingProtocol()}
"""All of them: the task rerank has its own."""

if TYPE_CHECKING:
    ProtocolName = str
else:
    ProtocolName = Literal[tuple(PROTOCOLS)]


def get_protocol(name: str) -> ActionProtocol:
    """The protocol of this name. Raises ConfigError where there is none."""
    try:
        return KNOWN_PROTOCOLS[name]
    except KeyError:
        raise ConfigError(f"agent.protocol {name!r}: unknown. Known protocols: {', '.join(KNOWN_PROTOCOLS)}.") from None
