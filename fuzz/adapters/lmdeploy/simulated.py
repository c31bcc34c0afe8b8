"""LMDeploy under simulation: the loop of its PyTorch engine, one step ahead of the results, and all that it calls.

What is pretended: the executor and what the model agent computes (`parts`); the client, which does what
`EngineInstance` does: a session for each request, stopped and ended where it goes away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...simulation.protocol import (
    ClientRequest,
    Delivered,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    Slots,
    StepResults,
)
from .engine import load
from .observe import LmdeployObserver
from .parts import HELD, SentStep, SteppedLoop, match_anew, module

NEVER = 0
"""A token that is neither sampled nor in a prompt."""
WHOLE, CANCELLED = "prompt-of-the-whole-length", "piece-cancelled-when-sent"
BEHIND = "appended-behind-own-blocks"
"""Known defects. The first: a prompt that leaves no room for an answer has a row in the agent's batch, and none in the
engine's. The second: a long prompt that is cancelled when a piece of it has just been sent. The third: who waits with
blocks gets those that the trie has for it behind them."""


@dataclass
class _Client:
    request: ClientRequest
    session: int
    response: Any
    got: int = 0


class LmdeploySimulated:
    """An installed LMDeploy, simulated."""

    name = "lmdeploy"
    depth = 2
    offers = frozenset({"adapters"})
    lacks = frozenset({"ids"})
    attention = ("full", "sliding")
    block_sizes = (2, 4, 8, 16)
    options: Mapping[str, tuple[bool, ...]] = {"chunked": (False, True), "ends_later": (False, True)}

    def __init__(self, mended: tuple[str, ...] = ()) -> None:
        """`mended`: known defects that it does not have. Errors as for `load`."""
        self.version: str = load().version
        self._mended = mended
        left = [name for name in (WHOLE, CANCELLED, BEHIND) if name not in mended]
        self.remedies = {name: partial(LmdeploySimulated, (*mended, name)) for name in left}

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        group = shape.groups[0]
        if group.kind == "sliding":  # the engine itself turns the prefix cache off
            shape = replace(shape, core=replace(shape.core, caching=False))
        self._shape, self._size = shape, group.block_size
        try:
            self._stepped = SteppedLoop(shape)
        except NotImplementedError as error:  # one reason for all shapes: it is counted by its words
            raise NotImplementedError("a pool, a window or a length that LMDeploy does not have") from error
        self._engine, self._loop = self._stepped.engine, self._stepped.loop
        self._preempted: list[str] = []
        scheduler = self._engine.scheduler
        preempt = scheduler.preempt_seqs

        def noted(sequences: Sequence[Any]) -> None:
            self._preempted += [self._names[sequence.session_id] for sequence in sequences]
            preempt(sequences)

        scheduler.preempt_seqs = noted
        match_anew(BEHIND not in self._mended)
        if CANCELLED in self._mended:
            self._stepped.mend_pieces()
        self._requests = module("engine.request")
        self._clients: dict[str, _Client] = {}
        self._names: list[str] = []
        """By session."""
        self._ends: list[int] = []

    # Clients, as `EngineInstance.async_stream_infer`.

    def _process(self, kind: str, **data: Any) -> Any:
        """One request of a client is handled, as `RequestManager.step` does; returns its response."""
        kinds, manager = self._requests.RequestType, self._engine.req_manager
        response = self._requests.Response(None, 0, module("engine.engine_loop").asyncio.Event())
        request = self._requests.Request(kinds[kind], 0, {"response": False, **data}, response)
        manager.process_request(request.type, [request])
        self._loop.has_runable_event.set()
        return response

    def add(self, request: ClientRequest) -> Sequence[Delivered]:
        """See `Engine`."""
        longest = self._engine.max_session_len - (WHOLE in self._mended)
        if len(request.prompt) > longest:
            return (Delivered(request.id, ended="refused", why="INPUT_LENGTH_ERROR"),)
        session = len(self._names)
        self._names.append(request.id)
        self._process("ADD_SESSION", session_id=session)
        sampling = load().messages.SamplingParam(max_new_tokens=request.max_tokens, stop_words=list(request.stop))
        message = {"token_ids": list(request.prompt), "sampling_param": sampling, "adapter_name": request.adapter}
        response = self._process("ADD_MESSAGE", session_id=session, **message)
        self._clients[request.id] = _Client(request, session, response)
        return ()

    def cancel(self, id: str) -> None:
        """See `Engine`."""
        client = self._clients.pop(id)
        self._process("STOP_SESSION", session_id=client.session)
        self._end(client.session)

    def _end(self, session: int) -> None:
        if self._shape.options["ends_later"]:
            self._ends.append(session)
        else:
            self._process("END_SESSION", session_id=session)

    # Steps.

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`; goes on with the loop until it has sent a step, or cannot go on."""
        ends, self._ends = self._ends, []
        for session in ends:
            self._process("END_SESSION", session_id=session)
        sent = self._stepped.executor.sent
        if not sent:
            self._stepped.go_on()
        told = self._answers()
        if not sent:
            return ScheduledBatch(delivered=told) if told else None
        step = sent.popleft()
        parts = tuple(self._part(step, row) for row in range(len(step.running)))
        preempted, self._preempted = tuple(self._preempted), []
        return ScheduledBatch(parts, delivered=told, preempted=preempted, own=step)

    def _part(self, step: SentStep, row: int) -> Scheduled:
        sequence, inputs = step.running[row], step.inputs
        first, many = int(inputs.history_lengths[row]), int(inputs.seq_length[row])
        at = row if inputs.is_decoding else int(inputs.seq_length[:row].sum())
        behind = int(inputs.num_ignored_history[row]) // self._size
        blocks = inputs.block_offsets[row].tolist()
        given = inputs.input_ids[0, at : at + many].tolist()
        own = HELD - sequence.seq_id
        tokens = tuple(token if token > HELD else -1 if token == own else NEVER for token in given)
        slots = Slots((*[None] * behind, *blocks))
        return Scheduled(
            self._names[sequence.session_id], first, many, slots=(slots,), tokens=tokens, samples=not step.is_middle
        )

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Sequence[Delivered]:
        """See `Engine`; the loop takes the results, and sends the next step at once if there is one."""
        step = batch.own if batch is not None else None
        if step is None:
            return ()
        names = [self._names[sequence.session_id] for sequence in step.running]
        tokens = [next(iter(results.tokens.get(name, ())), NEVER) for name in names]
        executor = self._stepped.executor
        executor.outputs.append(self._stepped.agent.land(step, tokens))
        while executor.outputs:
            self._stepped.go_on()
        return self._answers()

    def _answers(self) -> tuple[Delivered, ...]:
        """What clients get by now."""
        answers, told = self._loop.resp_queue, []
        while not answers.empty():
            self._loop._send_resps(list(answers.get_nowait().values()))
        kinds = load().responses
        for name, client in list(self._clients.items()):
            response = client.response
            if not response.event.is_set():
                continue
            response.event.clear()
            tokens = () if response.data is None else tuple(response.data["token_ids"].tolist())
            new, client.got = tokens[client.got :], len(tokens)
            ended: Any = ""
            if response.type == kinds.FINISH:
                ended = "stop" if tokens and tokens[-1] in client.request.stop else "length"
            elif response.type != kinds.SUCCESS:
                ended = "failed"
            if ended:
                del self._clients[name]
                self._end(client.session)
            told.append(Delivered(name, new, ended, str(response.type)))
        return tuple(told)

    def idle(self) -> bool:
        """See `Engine`."""
        return not (self._ends or self._stepped.executor.sent or self._loop.has_runable_event.has_unfinished())

    def look(self) -> EngineView:
        """See `Engine`."""
        return EngineView(LmdeployObserver(self._stepped.core, self._shape.num_blocks).num_free())
