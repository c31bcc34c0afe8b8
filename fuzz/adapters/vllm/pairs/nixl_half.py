"""A vLLM engine with NixlConnector: see `pair_half`. The library's place is taken by `nixl_agent`."""

from collections import Counter
from typing import Any

from .nixl_agent import Agent, Handshake, HandshakeAnswer, Notification, tell_time
from .nixl_worker import nixl_worker
from .pair_half import PairHalf


class NixlHalf(PairHalf):
    """The second engine reads the blocks."""

    connector_name = "NixlConnector"
    told: tuple[str, ...] = ("kv_lease_duration", "engine_ttl")
    agent: Agent

    def _equip(self, counts: Counter[str]) -> None:
        tell_time(lambda: self._port.now)
        self.agent = Agent(self.width, self.tell_other)
        self.worker = self._worker(counts)

    def _worker(self, counts: Counter[str]) -> Any:
        return nixl_worker(self.connector, self.agent, self.tell_other, counts)

    def _hear(self, message: Any) -> None:
        match message:
            case Notification(engine, text):
                if engine == self.engine_id:
                    self.agent.heard.append(text)
            case Handshake(engine):
                self.tell_other(HandshakeAnswer(engine, self.engine_id))
            case HandshakeAnswer():
                self.worker._handshake_initiation_executor.answered(message)

    def _wait(self) -> None:
        self.worker._handshake_initiation_executor.wait()

    def keeps(self, engine: str, request: str) -> bool:
        """See `PairHalf`."""
        kept = request in self.worker._reqs_to_process or request in self.worker._reqs_to_send
        return engine == self.engine_id and kept
