"""The worker's half of connectors between two engines, one that computes prompts and one that goes on with them.

The scheduler's engine has both parts, each for some of its requests. The other engine is simulated: it computed a
prompt with the same groups and block sizes and holds its blocks as such an engine does, so a block of the prompt that
lies before the window is the null block there. Its block ids say which block of the prompt they are: index + 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from ....model.arith import cdiv
from ....model.attention import Mamba
from ....model.ops import NULL, Shape
from ...simulation.memory import NOTHING
from .scheduler_config import module
from .scheduler_real_transfers import Copy
from .scheduler_real_workers import IdleWorker, WorkerScene

Blocks = Sequence[Sequence[int]]
_FAILS = 0.05
"""Share of the loads that fail, in runs in which any does."""


class Remote(IdleWorker):
    """What these connectors have in common."""

    within_step = False
    """True if loads end before the step is computed, so that they are not reported."""
    gives, takes = True, True
    """Whether the engine computes prompts for others, and goes on with those of others."""

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        self._states = any(isinstance(rule, Mamba) for rule in scene.device.rules)
        self._prompts: dict[str, int] = {}
        self._failed: dict[str, list[int]] = {}
        self._sent: dict[str, Blocks] = {}
        self._fails = scene.random.choice((0.0, 0.0, _FAILS))

    # Requests.

    def arrive(self, request: Any) -> None:
        """Draw which part the engine has in the request, and give it what a router would send along."""
        name, part = request.request_id, self.scene.random.choice(("take", "take", "give", "neither"))
        self._prompts[name] = max(1, request.num_prompt_tokens - self._states)
        if part == "take" and self.takes and self._whole(request):
            request.kv_transfer_params = dict(self.taking(name, self.remote_blocks(name)))
        elif part == "give" and self.gives:
            request.kv_transfer_params = dict(self.giving(name))
            request.max_tokens = request.sampling_params.max_tokens = 1

    def _whole(self, request: Any) -> bool:
        """A prompt of one token leaves nothing to take where the last one is computed again."""
        return bool(request.num_prompt_tokens > 1)

    def taking(self, name: str, blocks: Blocks) -> Mapping[str, object]:
        """Parameters of a request whose prompt the other engine has computed into these blocks of its own."""
        raise NotImplementedError

    def giving(self, name: str) -> Mapping[str, object]:
        """Parameters of a request of which this engine computes the prompt."""
        raise NotImplementedError

    def remote_blocks(self, name: str) -> list[list[int]]:
        """The other engine's blocks of a prompt, as it sends them: the last ones of a window, the last state."""
        tables = []
        for rule in self.scene.device.rules:
            last = cdiv(self._prompts[name], rule.b)
            first = 0
            if isinstance(rule, Mamba):
                first = last - 1
            elif rule.windowed:
                first = max(0, last - cdiv(rule.w, rule.b) - 1)
            tables.append(list(range(first + 1, last + 1)))
        return tables

    # Loads.

    def jobs_in(self, metadata: Any) -> Iterable[tuple[str, Blocks, Blocks]]:
        """Name, own blocks and the other engine's blocks of each load that the metadata ask for."""
        raise NotImplementedError

    def load(self, metadata: Any, output: Any) -> None:
        """Begin the loads; one that has no blocks is only a message to the other engine."""
        for name, mine, theirs in self.jobs_in(metadata):
            if not any(mine):
                continue
            copies = list(self._copies(name, mine, theirs))
            if not self.within_step and self.scene.random.random() < self._fails:
                self._failed[name] = [block for blocks in mine for block in blocks]
                copies = []
            self.scene.transfers.begin(name, True, copies)
            if self.within_step:
                self.scene.transfers.finish([name])
                self.scene.transfers.ended(True)

    def _copies(self, name: str, mine: Blocks, theirs: Blocks) -> Iterable[Copy]:
        """Own blocks and the last ones of the other engine belong together. RuntimeError where a worker refuses."""
        for group, (local, remote) in enumerate(zip(mine, theirs, strict=True)):
            if len(local) > len(remote):
                raise RuntimeError(f"the worker refuses a load: {len(local)} blocks of group {group} for {len(remote)}")
            for block, index in zip(local, remote[len(remote) - len(local) :], strict=True):
                yield Copy(block, partial(self._fetch, name, group, block, index - 1))

    def _fetch(self, name: str, group: int, block: int, index: int) -> str:
        """The prompt's block `index` arrives in `block`."""
        rule, end = self.scene.device.rules[group], self._prompts[name]
        if block == NULL or index * rule.b >= end:  # behind the last token: room for states of drafts
            return ""
        if not isinstance(rule, Mamba) and (index + 1) * rule.b <= rule.skipped(end):
            self.scene.transfers.memory.set_page(block, [NOTHING] * rule.b)  # the other engine has dropped it
            return ""
        tables: list[list[int]] = [[] for _ in self.scene.device.rules]
        tables[group] = [NULL] * index + [block]
        self.scene.device.load_now(name, tables, index * rule.b, min((index + 1) * rule.b, end))
        return ""

    # Sends.

    def _note_sends(self) -> None:
        """Keep what the scheduler half tells the router of the blocks of a prompt that ended."""
        half = self.scene.scheduler.connector.connector_scheduler
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

    def store(self, metadata: Any, output: Any) -> None:
        """The other engine reads the blocks of prompts that have been computed."""
        for name, tables in self.jobs_out(metadata):
            kept: dict[Any, list[int]] = {}
            copies = [
                self.scene.transfers.into(kept, (group, block), block)
                for group, blocks in enumerate(tables)
                for block in blocks
                if block != NULL
            ]
            self.scene.transfers.begin(name, False, copies)

    def report(self) -> Mapping[str, object]:
        """Requests whose loads have ended, well or not, and those whose blocks have been read."""
        arrived, sent = set(self.scene.transfers.ended(True)), set(self.scene.transfers.ended(False))
        fields: dict[str, object] = {"finished_recving": arrived} if arrived else {}
        if sent:
            fields["finished_sending"] = sent
        failed = {str(name): self._failed.pop(str(name)) for name in arrived if name in self._failed}
        if failed and len(self.scene.shape.groups) > 1:
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

    def jobs_in(self, metadata: Any) -> Iterable[tuple[str, Blocks, Blocks]]:
        """See above."""
        for name, job in metadata.reqs_to_recv.items():
            yield name, job.local_block_ids, job.remote.block_ids


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
        tables = super().remote_blocks(name)
        for rule, table in zip(self.scene.device.rules, tables, strict=True):
            if isinstance(rule, Mamba):
                table += [table[-1] + 1 + more for more in range(rule.group.speculative_blocks)]
        return tables

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
    within_step, gives = True, False

    @staticmethod
    def options(random: Random, shape: Shape) -> Mapping[str, object]:
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
        rules = self.scene.device.rules
        return sorted(range(len(rules)), key=lambda group: isinstance(rules[group], Mamba))

    def jobs_in(self, metadata: Any) -> Iterable[tuple[str, Blocks, Blocks]]:
        """See above."""
        for name, job in metadata.reqs_to_recv.items():
            mine: list[Sequence[int]] = [[] for _ in self.scene.shape.groups]
            theirs: list[Sequence[int]] = [[] for _ in self.scene.shape.groups]
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


def third_party_missing(name: str) -> str:
    """Why the release cannot import a connector here; empty if it can."""
    factory = module("distributed.kv_transfer.kv_connector.factory").KVConnectorFactory
    try:
        factory._registry[name]()
    except KeyError:
        return "the release has none"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
