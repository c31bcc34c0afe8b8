"""The worker's half of connectors between two engines, one that computes prompts and one that goes on with them.

The scheduler's engine has both parts, each for some of its requests. The other engine is simulated: it computed a
prompt with the same groups and block sizes and holds its blocks as such an engine does, so a block of the prompt that
lies before the window is the null block there. Its block ids say which block of the prompt they are: index + 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from zlib import crc32

from .....model.arith import cdiv
from .....model.attention import Mamba
from .....model.ops import NULL, Shape, Value
from ....simulation.protocol import ClientRequest, SlotTransfer
from .connector_workers import ConnectorJob, ConnectorWorker, Options, WorkerScene, at_once, count_in, loaded
from .scheduler_config import module

Blocks = Sequence[Sequence[int]]
_NOWHERE, _THERE = "nowhere", "other engine"
"""Memories: what nobody has written, and that of the other engine."""


class Remote(ConnectorWorker):
    """What these connectors have in common."""

    options: ClassVar[Options] = {"loads_fail": (0, 0, 4)}
    """Every so many-th load fails; 0: none."""
    leaves_last = False
    """Both engines leave the last token of a prompt out, as they do where there are states."""
    within_step = False
    """True if loads end before the step is computed, so that they are not reported."""
    gives, takes = True, True
    """Whether the engine computes prompts for others, and goes on with those of others."""

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        self._states = any(isinstance(rule, Mamba) for rule in scene.rules)
        self._prompts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        """Of the requests of jobs."""
        self._failed: dict[str, tuple[int, ...]] = {}
        self._sent: dict[str, Blocks] = {}
        self._loads = self._stores = 0
        self._by_block = len(scene.rules) == 1 and scene.rules[0].is_full
        """Blocks are told that failed, not requests; requests can be told from 0.30 on."""
        self._can_fail = self._by_block or hasattr(module("v1.outputs").KVConnectorOutput(), "failed_recving")

    # Requests.

    def _part(self, client: ClientRequest) -> str:
        """A request of a single token is computed for the other engine, most others go on with a prompt that the other
        engine has computed."""
        room = len(client.prompt) + 2 <= self.scene.shape.max_model_len
        if client.max_tokens == 1 and self.gives and not client.external and room:
            return "gives"
        is_odd = crc32(client.id.encode()) % 4 == 0
        return "takes" if self.takes and len(client.prompt) > 1 and (client.external or not is_odd) else ""

    def asked_for(self, request: ClientRequest) -> ClientRequest:
        """With states, of what it computes for the other engine it leaves the last token out: one more is asked for,
        so that the client gets what belongs behind its own last one."""
        more = self._part(request) == "gives" and self._states
        return replace(request, prompt=(*request.prompt, 1)) if more else request

    def arrive(self, request: Any) -> None:
        """Give a request what a router would send along."""
        name, client = request.request_id, self.scene.clients[request.request_id]
        self._prompts[name] = max(1, len(client.prompt) - (self._states or self.leaves_last))
        part = self._part(client)
        if part == "gives":
            request.kv_transfer_params = dict(self.giving(name))
        elif part == "takes":
            request.kv_transfer_params = dict(self.taking(name, self.remote_blocks(name)))

    def taking(self, name: str, blocks: Blocks) -> Mapping[str, object]:
        """Parameters of a request whose prompt the other engine has computed into these blocks of its own."""
        raise NotImplementedError

    def giving(self, name: str) -> Mapping[str, object]:
        """Parameters of a request of which this engine computes the prompt."""
        raise NotImplementedError

    def remote_blocks(self, name: str) -> list[list[int]]:
        """The other engine's blocks of a prompt, as it sends them: the last ones of a window, the last state."""
        tables = []
        for rule in self.scene.rules:
            last = cdiv(self._prompts[name], rule.b)
            first = 0
            if isinstance(rule, Mamba):
                first = last - 1
            elif rule.windowed:
                first = max(0, last - cdiv(rule.w, rule.b) - 1)
            tables.append(list(range(first + 1, last + 1)))
        return tables

    def _with_room(self, tables: list[list[int]]) -> list[list[int]]:
        """With the blocks for states of drafts behind the last state."""
        for rule, table in zip(self.scene.rules, tables, strict=True):
            if isinstance(rule, Mamba):
                table += [table[-1] + 1 + more for more in range(rule.group.speculative_blocks)]
        return tables

    # Loads.

    def jobs_in(self, metadata: Any) -> Iterable[tuple[str, Blocks, Blocks]]:
        """Name, own blocks and the other engine's blocks of each load that the metadata ask for."""
        raise NotImplementedError

    def jobs(self, metadata: Any, output: Any) -> Iterator[ConnectorJob]:
        """Loads, but for those without blocks, which are only messages to the other engine; and what it reads."""
        for name, mine, theirs in self.jobs_in(metadata):
            if any(mine):
                job = self._load(name, mine, theirs)
                self._names[job.key] = name
                yield at_once(job) if self.within_step else job
        for name, tables in self.jobs_out(metadata):
            job = self._send(name, [block for blocks in tables for block in blocks if block != NULL])
            self._names[job.key] = name
            yield job

    def _load(self, name: str, mine: Blocks, theirs: Blocks) -> ConnectorJob:
        """Own blocks and the last ones of the other engine belong together. RuntimeError where a worker refuses."""
        every = count_in(self.scene.options, "loads_fail") if self._can_fail else 0
        end, empty = self._prompts[name], list[int]()
        tables: list[list[int]] = []
        for group, (rule, local, remote) in enumerate(zip(self.scene.rules, mine, theirs, strict=True)):
            if len(local) > len(remote):
                raise RuntimeError(f"the worker refuses a load: {len(local)} blocks of group {group} for {len(remote)}")
            table = [NULL] * cdiv(end, rule.b)
            for block, index in zip(local, remote[len(remote) - len(local) :], strict=True):
                at = index - 1
                if block == NULL or at >= len(table):  # behind the last token: room for states of drafts
                    continue
                if not isinstance(rule, Mamba) and index * rule.b <= rule.skipped(end):
                    empty.append(block)  # the other engine has dropped it
                else:
                    table[at] = block
            tables.append(table)
        self._loads += 1
        job = loaded(self.scene, name, tables, 0, end)
        if every and self._loads % every == 0 and not self.within_step:
            self._failed[name] = job.blocks
            return ConnectorJob(job.key, "load", (self._nothing(job.key, job.blocks),), job.blocks)
        more = (self._nothing(job.key, empty),) if empty else ()
        return ConnectorJob(job.key, "load", (*job.transfers, *more), (*job.blocks, *empty))

    def _nothing(self, key: str, blocks: Sequence[int]) -> SlotTransfer:
        """Nothing that was computed gets into these blocks."""
        slots = self.scene.slots(blocks)
        return SlotTransfer(f"{key}, nothing", "load", 0, slots, _NOWHERE, slots)

    # Sends.

    def _note_sends(self) -> None:
        """Keep what the scheduler half tells the router of the blocks of a prompt that ended."""
        half = self.scene.connector.connector_scheduler
        finished = half.request_finished

        def noted(request: Any, *given: Any) -> Any:
            delay, params = finished(request, *given)
            if delay:
                self._sent[request.request_id] = params["remote_block_ids"]
            return delay, params

        half.request_finished = noted

    def jobs_out(self, metadata: Any) -> Iterable[tuple[str, Blocks]]:
        """Name and blocks of each request whose blocks the other engine will read."""
        for name in metadata.reqs_to_send:
            yield name, self._sent.pop(name)

    def _send(self, name: str, blocks: list[int]) -> ConnectorJob:
        first, self._stores = self._stores, self._stores + len(blocks)
        key, there = f"{self.scene.prefix}send of {name}", self.scene.slots(range(first, self._stores))
        told = SlotTransfer(key, "store", 0, self.scene.slots(blocks), _THERE, there, kept=True)
        return ConnectorJob(key, "store", (told,), tuple(blocks))

    def report(self, ended: Sequence[str]) -> dict[str, Any]:
        """Requests whose loads have ended, well or not, and those whose blocks have been read."""
        names = [(" send of " in f" {key}", self._names.pop(key)) for key in ended]
        arrived, sent = {name for out, name in names if not out}, {name for out, name in names if out}
        if self.within_step:
            arrived = set()
        fields: dict[str, Any] = {"finished_recving": arrived} if arrived else {}
        if sent:
            fields["finished_sending"] = sent
        failed = {name: self._failed.pop(name) for name in arrived if name in self._failed}
        if failed and not self._by_block:
            fields["failed_recving"] = set(failed)
        elif failed:
            fields["invalid_block_ids"] = {block for blocks in failed.values() for block in blocks}
        return fields


class Nixl(Remote):
    """Pulls the blocks that are not cached here; the other engine pulls those of its requests."""

    name = "NixlConnector"

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        self._note_sends()

    def taking(self, name: str, blocks: Blocks) -> Mapping[str, object]:
        """See above."""
        return {
            "do_remote_prefill": True,
            "remote_block_ids": blocks,
            "remote_engine_id": "other",
            "remote_request_id": name,
            "remote_host": "localhost",
            "remote_port": 1,
            "tp_size": 1,
        }

    def giving(self, name: str) -> Mapping[str, object]:
        """See above."""
        return {"do_remote_decode": True}

    def remote_blocks(self, name: str) -> list[list[int]]:
        """Up to 0.26 with the room for states of drafts."""
        tables = super().remote_blocks(name)
        clips = hasattr(self.scene.connector.connector_scheduler, "get_exchange_clipped_blocks")
        return tables if clips else self._with_room(tables)

    def jobs_in(self, metadata: Any) -> Iterable[tuple[str, Blocks, Blocks]]:
        """See above."""
        for name, job in metadata.reqs_to_recv.items():
            yield name, job.local_block_ids, job.remote.block_ids


class NixlPush(Nixl):
    """The other engine writes the blocks that are registered with it."""

    name = "NixlPushConnector"

    def jobs_in(self, metadata: Any) -> Iterable[tuple[str, Blocks, Blocks]]:
        """See above."""
        for name, job in metadata.push_registrations.items():
            yield name, job["local_block_ids"], self.remote_blocks(name)

    def jobs_out(self, metadata: Any) -> Iterable[tuple[str, Blocks]]:
        """See above."""
        yield from metadata.push_finished_blocks.items()


class Mooncake(Remote):
    """The other engine writes the blocks; it pairs them as `Nixl` does."""

    name = "MooncakeConnector"

    def taking(self, name: str, blocks: Blocks) -> Mapping[str, object]:
        """See above."""
        return {
            "do_remote_prefill": True,
            "remote_engine_id": "other",
            "remote_bootstrap_addr": "localhost:1",
            "transfer_id": name,
        }

    def giving(self, name: str) -> Mapping[str, object]:
        """See above."""
        return {"do_remote_decode": True, "transfer_id": name}

    def remote_blocks(self, name: str) -> list[list[int]]:
        """With the room for states of drafts, which is not taken off."""
        return self._with_room(super().remote_blocks(name))

    def jobs_in(self, metadata: Any) -> Iterable[tuple[str, Blocks, Blocks]]:
        """See above."""
        for jobs in metadata.reqs_to_recv.values():
            for name, job in jobs.items():
                yield name, job.local_block_ids, self.remote_blocks(name)

    def jobs_out(self, metadata: Any) -> Iterable[tuple[str, Blocks]]:
        """See above."""
        for name, (_, blocks) in metadata.reqs_to_send.items():
            if any(blocks):
                yield name, blocks


class MoriioTakes(Remote):
    """Reads the prompt's blocks before the step in which its last token is computed."""

    name = "MoRIIOConnector"
    role = "kv_consumer"
    since = (0, 33)
    within_step, gives = True, False

    @classmethod
    def extra(cls, options: Mapping[str, Value], shape: Shape) -> dict[str, object]:
        """Reading, not being written to: the mode that takes several groups."""
        return {"read_mode": "true"}

    def taking(self, name: str, blocks: Blocks) -> Mapping[str, object]:
        """See above."""
        return {
            "do_remote_prefill": True,
            "remote_block_ids": self._in_order(blocks),
            "remote_engine_id": "other",
            "transfer_id": name,
            "remote_host": "localhost",
            "remote_handshake_port": 1,
            "remote_notify_port": 1,
        }

    def _in_order(self, blocks: Blocks) -> list[Sequence[int]]:
        """Groups of states come last on the wire."""
        return [blocks[group] for group in self._order()]

    def _order(self) -> list[int]:
        rules = self.scene.rules
        return sorted(range(len(rules)), key=lambda group: isinstance(rules[group], Mamba))

    def jobs_in(self, metadata: Any) -> Iterable[tuple[str, Blocks, Blocks]]:
        """See above."""
        for name, job in metadata.reqs_to_recv.items():
            mine: list[Sequence[int]] = [[] for _ in self.scene.rules]
            theirs: list[Sequence[int]] = [[] for _ in self.scene.rules]
            for at, group in enumerate(self._order()):
                mine[group], theirs[group] = job.local_block_ids[at], job.remote_block_ids[at]
            yield name, mine, theirs


class MoriioGives(MoriioTakes):
    """Holds a prompt's blocks until they have been read."""

    role = "kv_producer"
    gives, takes = True, False

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        self._note_sends()

    def giving(self, name: str) -> Mapping[str, object]:
        """See above."""
        return {"do_remote_decode": True, "transfer_id": name}
