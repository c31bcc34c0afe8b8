"""A vLLM engine that computes prompts for another one, or takes over their blocks and answers.

Its scheduler and both halves of its connector are the release's; what stands in for the connector's library, a subclass
says.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from .....model.attention import rule_for
from ....simulation.attempts import AttemptsHalf
from ....simulation.network import Node, Port
from ....simulation.protocol import (
    ClientRequest,
    EngineShape,
    EngineView,
    PoolTooSmallError,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    SlotTransfer,
    StepResults,
)
from ..engine.built_scheduler import BuiltScheduler
from ..engine.connectors import build_with
from ..engine.known_causes import KNOWN
from ..engine.scheduler_config import make, module, setup_of
from ..engine.simulated import ENDS
from ..engine.worker_rows import WorkerRows

_ROLES: Mapping[str, str] = {"prefill": "kv_producer", "decode": "kv_consumer"}


class Library(Protocol):
    """In place of the connector's library, in one engine."""

    begun: list[SlotTransfer]
    """To be told with the step."""
    failed: list[str]
    """Requests whose blocks could not be had."""

    @property
    def reading(self) -> bool:
        """True while blocks are read or written."""
        ...

    def ended(self, id: str, well: bool) -> None:
        """A transfer has ended."""
        ...


class PairHalf(AttemptsHalf):
    """One of the two engines: see `HalfEngine`."""

    connector_name: str
    told: tuple[str, ...] = ()
    """The options that its connector is told."""
    agent: Library
    worker: Any
    """The worker's half."""

    def __init__(self, shape: EngineShape, port: Port, counts: Counter[str], mended: Sequence[str] = ()) -> None:
        """`counts` gets what the worker records; `mended`: known defects of the release that it does not have."""
        super().__init__(port)
        self._known = [KNOWN[name] for name in mended if name in KNOWN]
        self._other: Node = "decode" if port.name == "prefill" else "prefill"
        self.options = shape.options
        self.setup = setup_of(shape)
        for known in self._known:
            self.setup = known.setup(self.setup)
        self.built = BuiltScheduler(self.setup)
        if self.built.room < 0:
            raise PoolTooSmallError("the start-up check refuses the pool")
        self._connect(shape)
        self.setup = replace(self.setup, connector=self.connector_name)
        rules = [rule_for(group, shape.core) for group in shape.groups]
        self.width = max(rule.b for rule in rules)
        """Slots of a block."""
        self._clients: dict[str, ClientRequest] = {}
        self._rows = WorkerRows(self._clients, rules, learns_accepted=False)
        self.connector = self.scheduler.connector.connector_scheduler
        """The scheduler's half."""
        self._equip(counts)
        self._outputs: list[Any] = []
        """Of steps whose worker has not been asked yet what was transferred."""
        self._reports: dict[int, Any] = {}
        self.ends_failed = False
        """A request whose blocks could not be had ends, whatever its scheduler is told."""
        for known in self._known:
            known.engine(self)

    def _equip(self, counts: Counter[str]) -> None:
        """Make `agent` and `worker`."""
        raise NotImplementedError

    def _parameters(self, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What the router sends along with a request."""
        return dict(parameters)

    def _told_always(self) -> Mapping[str, object]:
        """What its connector is told besides."""
        return {}

    def _wait(self) -> None:
        """Give up what was waited for too long."""

    def _work_on(self) -> None:
        """What the worker's own thread does, if it has one."""

    @property
    def engine_id(self) -> str:
        """The name of the engine, in this life."""
        return f"{self._port.name} {self._port.life}"

    @property
    def life(self) -> int:
        """How often it has crashed before."""
        return self._port.life

    def keeps(self, engine: str, request: str) -> bool:
        """True if this is the engine, and it still holds the blocks of a request for the other one."""
        raise NotImplementedError

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
        build_with(
            self.built,
            kv_connector=self.connector_name,
            kv_role=_ROLES[self._port.name],
            engine_id=self.engine_id,
            kv_connector_extra_config={
                **{name: int(str(shape.options[name])) for name in self.told},
                **self._told_always(),
            },
            kv_load_failure_policy=shape.options["kv_load_failure_policy"],
        )

    def tell_other(self, message: Any) -> None:
        """A message to the other engine."""
        self._port.send(self._other, message)

    # Messages.

    def _serve(self, name: str, request: ClientRequest, parameters: Mapping[str, Any]) -> bool:
        if self._port.name == "prefill":
            request = replace(request, max_tokens=1)
        for known in self._known:
            request = known.request(request)
        self._clients[name] = request
        asked = self.built.request(request, name, False)
        asked.kv_transfer_params = self._parameters(name, parameters)
        self.scheduler.add_request(asked)
        return True

    def _stop(self, name: str) -> None:
        self.scheduler.finish_requests(name, module("v1.request").RequestStatus.FINISHED_ABORTED)

    # Steps.

    def schedule(self) -> ScheduledBatch | None:
        """See `HalfEngine`."""
        self._tell_alive()
        if not self.scheduler.has_requests():
            return None
        self._finish_worker()
        output = self.scheduler.schedule()
        self._rows.receive(output)
        self._wait()
        self.worker.start_load_kv(output.kv_connector_metadata)
        self._work_on()
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
            self._fail(name)
        if self._outputs:
            self._work_on()
        for output in self._outputs:
            self._reports[id(output)] = make(
                module("v1.outputs").KVConnectorOutput,
                **_ended_by(self.worker),
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
        ended = "" if one.finish_reason is None else ENDS.get(int(one.finish_reason), "failed")
        where = self._where(one) if ended else one.kv_transfer_params
        self._tell_tokens(one.request_id, one.new_token_ids, ended, where)

    def _where(self, answer: Any) -> Mapping[str, Any] | None:
        """What the router is told of the blocks of a prompt that was computed."""
        told: Mapping[str, Any] | None = answer.kv_transfer_params
        return told

    def idle(self) -> bool:
        """See `HalfEngine`."""
        return not (self.scheduler.has_requests() or self.agent.reading)

    def look(self) -> EngineView:
        """See `HalfEngine`."""
        return EngineView(self.pool.get_num_free_blocks())


def _ended_by(worker: Any) -> Mapping[str, object]:
    """What the worker says at the end of a step: of which requests the blocks were sent, received, or not to be had."""
    if hasattr(worker, "get_transfer_results"):
        return dict(vars(worker.get_transfer_results()))
    sent, received = worker.get_finished()
    return {"finished_sending": sent, "finished_recving": received}
