"""A vLLM engine that computes prompts for another one, or reads their blocks there and answers.

Its scheduler and both halves of NixlConnector are the release's (`nixl_worker`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....model.attention import rule_for
from ...simulation.network import Node, Port
from ...simulation.protocol import (
    ClientRequest,
    EngineShape,
    EngineView,
    PoolTooSmallError,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    StepResults,
)
from .built_scheduler import BuiltScheduler
from .connectors import build_with
from .known_causes import KNOWN
from .nixl_agent import Agent, Handshake, HandshakeAnswer, Notification, tell_time
from .nixl_worker import ended_by, nixl_worker
from .pair_router import BEAT, Abort, Alive, Serve, TokensTold
from .scheduler_config import make, module, setup_of
from .simulated import ENDS
from .worker_rows import WorkerRows

_ROLES: Mapping[str, str] = {"prefill": "kv_producer", "decode": "kv_consumer"}


@dataclass
class _Held:
    """An attempt, as the engine has it."""

    id: str
    attempt: int
    tokens: list[int] = field(default_factory=list)


class NixlHalf:
    """One of the two engines: see `HalfEngine`."""

    def __init__(self, shape: EngineShape, port: Port, counts: Counter[str], mended: Sequence[str] = ()) -> None:
        """`counts` gets what the worker records; `mended`: known defects of the release that it does not have."""
        self._port, self._known = port, [KNOWN[name] for name in mended if name in KNOWN]
        self._other: Node = "decode" if port.name == "prefill" else "prefill"
        self.setup = setup_of(shape)
        for known in self._known:
            self.setup = known.setup(self.setup)
        self.built = BuiltScheduler(self.setup)
        if self.built.room < 0:
            raise PoolTooSmallError("the start-up check refuses the pool")
        self._connect(shape)
        rules = [rule_for(group, shape.core) for group in shape.groups]
        self._clients: dict[str, ClientRequest] = {}
        self._rows = WorkerRows(self._clients, rules, learns_accepted=False)
        tell_time(lambda: port.now)
        self.agent = Agent(max(rule.b for rule in rules), self._tell_other)
        self.connector = self.scheduler.connector.connector_scheduler
        """The scheduler's half."""
        self.worker = nixl_worker(self.connector, self.agent, self._tell_other, counts)
        self._held: dict[str, _Held] = {}
        self._newest: dict[str, int] = {}
        self._outputs: list[Any] = []
        """Of steps whose worker has not been asked yet what was transferred."""
        self._reports: dict[int, Any] = {}
        self._beat = 0
        self.ends_failed = False
        """A request whose blocks could not be had ends, whatever its scheduler is told."""
        for known in self._known:
            known.engine(self)

    @property
    def _engine_id(self) -> str:
        return f"{self._port.name} {self._port.life}"

    def keeps(self, engine: str, request: str) -> bool:
        """True if this is the engine, and it still holds the blocks of a request for the other one."""
        kept = request in self.worker._reqs_to_process or request in self.worker._reqs_to_send
        return engine == self._engine_id and kept

    @property
    def scheduler(self) -> Any:
        """The release's scheduler."""
        return self.built.scheduler

    @property
    def pool(self) -> Any:
        """Its pool."""
        return self.built.pool

    def _connect(self, shape: EngineShape) -> None:
        """Build the scheduler again, now with the connector."""
        options = shape.options
        build_with(
            self.built,
            kv_connector="NixlConnector",
            kv_role=_ROLES[self._port.name],
            engine_id=self._engine_id,
            kv_connector_extra_config={name: int(str(options[name])) for name in ("kv_lease_duration", "engine_ttl")},
            kv_load_failure_policy=options["kv_load_failure_policy"],
        )

    def _tell_other(self, message: Any) -> None:
        self._port.send(self._other, message)

    # Messages.

    def receive(self, sender: str, message: Any) -> None:
        """See `HalfEngine`."""
        match message:
            case Serve(request, attempt, parameters):
                self._serve(request, attempt, parameters)
            case Abort(id, attempt):
                self._newest[id] = max(attempt, self._newest.get(id, 0))
                self._abort(f"{id}/{attempt}")
            case Notification(engine, text):
                if engine == self._engine_id:
                    self.agent.heard.append(text)
            case Handshake(engine):
                self._tell_other(HandshakeAnswer(engine, self._engine_id))
            case HandshakeAnswer():
                self.worker._handshake_initiation_executor.answered(message)

    def _serve(self, request: ClientRequest, attempt: int, parameters: Mapping[str, Any]) -> None:
        """An attempt, unless this one or a newer one was there already; an older one ends."""
        before = self._newest.get(request.id, 0)
        if attempt <= before:
            return
        self._newest[request.id] = attempt
        self._abort(f"{request.id}/{before}")
        name = f"{request.id}/{attempt}"
        if self._port.name == "prefill":
            request = replace(request, max_tokens=1)
        for known in self._known:
            request = known.request(request)
        self._clients[name], self._held[name] = request, _Held(request.id, attempt)
        asked = self.built.request(request, name, False)
        asked.kv_transfer_params = dict(parameters)
        self.scheduler.add_request(asked)

    def _abort(self, name: str) -> None:
        if self._held.pop(name, None) is not None:
            self.scheduler.finish_requests(name, module("v1.request").RequestStatus.FINISHED_ABORTED)

    def _tell_router(self) -> None:
        """Now and then, what it works on; a new life at once."""
        if (self._held or not self._beat) and self._port.now >= self._beat:
            self._beat = self._port.now + BEAT
            held = tuple((one.id, one.attempt) for one in self._held.values())
            self._port.send("router", Alive(self._port.life, held))

    # Steps.

    def schedule(self) -> ScheduledBatch | None:
        """See `HalfEngine`."""
        self._tell_router()
        if not self.scheduler.has_requests():
            return None
        self._finish_worker()
        output = self.scheduler.schedule()
        self._rows.receive(output)
        self.worker._handshake_initiation_executor.wait()
        self.worker.start_load_kv(output.kv_connector_metadata)
        self._outputs.append(output)
        begun, self.agent.begun = self.agent.begun, []
        return ScheduledBatch(
            tuple(self._part(name, many) for name, many in output.num_scheduled_tokens.items()),
            tuple(SlotCopy(0, one.src_block_id, one.dst_block_id) for one in output.kv_cache_block_copies or ()),
            tuple(begun),
            preempted=tuple(self._clients[name].id for name in output.preempted_req_ids or ()),
            own=output,
            cleared=tuple(output.new_block_ids_to_zero or ()),
        )

    def _part(self, name: str, many: int) -> Scheduled:
        request = self.scheduler.requests[name]
        return self._rows.part(name, many, (), samples=request.num_computed_tokens >= request.num_tokens)

    def _finish_worker(self) -> None:
        """The worker has run its step, and says what was transferred."""
        failed, self.agent.failed = self.agent.failed, []
        for name in failed if self.ends_failed else ():
            if (held := self._held.get(name)) is not None:
                self._abort(name)
                self._port.send("router", TokensTold(held.id, held.attempt, (), "failed"))
        for output in self._outputs:
            self._reports[id(output)] = make(
                module("v1.outputs").KVConnectorOutput,
                **ended_by(self.worker),
                invalid_block_ids=self.worker.get_block_ids_with_load_errors(),
            )
        self._outputs.clear()

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        """See `HalfEngine`."""
        for id_ in results.transferred:
            self.agent.ended(id_, True)
        for id_ in results.failed:
            self.agent.ended(id_, False)
        if batch is None:
            return
        self._finish_worker()
        output = batch.own
        ran = self._rows.report(list(output.num_scheduled_tokens), results.tokens, self._reports.pop(id(output)))
        for answers in self.scheduler.update_from_output(output, ran).values():
            for one in answers.outputs:
                self._answer(one)

    def _answer(self, one: Any) -> None:
        held = self._held.get(one.request_id)
        if held is None:
            return
        held.tokens += one.new_token_ids
        ended = "" if one.finish_reason is None else ENDS.get(int(one.finish_reason), "failed")
        if ended:
            del self._held[one.request_id]
        if ended or self._port.name == "decode":
            told = TokensTold(held.id, held.attempt, tuple(held.tokens), ended, one.kv_transfer_params)
            self._port.send("router", told)

    def idle(self) -> bool:
        """See `HalfEngine`."""
        return not (self.scheduler.has_requests() or self.agent.reading)

    def look(self) -> EngineView:
        """See `HalfEngine`."""
        return EngineView(self.pool.get_num_free_blocks())
