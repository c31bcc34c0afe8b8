"""The `Driver` for a `Binding`: the calls of the release's own scheduler, for timing."""

from collections.abc import Mapping, Sequence
from time import thread_time_ns
from typing import Any

from ....model.ops import NULL, Shape, Submit
from .binding import Binding


class VllmStyleDriver:
    """Our core, a release, or any other core that a binding describes. Methods as in `targets.driver.Driver`."""

    clock = staticmethod(thread_time_ns)

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._release = binding.release
        self._found: Any = None

    def build(self, shape: Shape) -> object:
        """See `Driver.build`."""
        used = {"Shape.watermark": shape.watermark, "Group.checkpoint": any(one.checkpoint for one in shape.groups)}
        used["Shape.names_junctions"] = shape.retention_interval is not None  # what such a one is timed for
        used["hits_inside_blocks"] = all(shape.hash_block_size < one.block_size for one in shape.groups)
        for name in [name for name, is_used in used.items() if is_used]:
            if name not in self._release.offers:
                raise NotImplementedError(f"it has no {name}")
        self._manager = self._binding.manager(shape)
        self._shape = shape
        self._hasher: Any = None
        self._found = None
        return self._manager

    def request(self, name: str, prompt: list[int]) -> Any:
        """See `Driver.request`."""
        if self._hasher is None:
            self._hasher = self._binding.block_hasher(self._shape)
        return self.make(self._fields(name, prompt, self._hasher))

    def report_hits(self, request: Any) -> None:
        """See `Driver.report_hits`."""
        if "Submit.reports_hits" not in self._release.offers:
            raise NotImplementedError("it tells nobody of hits")
        request.kv_cache_report_mode = "full"

    def lookup(self, request: Any) -> int:
        """See `Driver.lookup`."""
        found = self._manager.get_computed_blocks(request)
        self._found = found[0]
        if self._release.boundary:
            request.shared_prefix_boundary = found[2]
        hit: int = found[1]
        return hit

    def admit(self, request: Any, hit: int, tokens: int) -> bool:
        """See `Driver.admit`."""
        return self._manager.allocate_slots(request, tokens, hit, self._found) is not None

    def proceed(self, request: Any, tokens: int) -> bool:
        """See `Driver.proceed`."""
        return self._manager.allocate_slots(request, tokens) is not None

    def decode(self, requests: Sequence[Any]) -> Any:
        """See `Driver.decode`."""
        allocate = self._manager.allocate_slots
        for request in requests:
            if allocate(request, 1) is None:
                return request
        return None

    def decode_batch(self, requests: Sequence[Any]) -> Any:
        """See `Driver.decode_batch`."""
        allocate = getattr(self._manager, "allocate_slots_batch", None)
        if allocate is None:
            return self.decode(requests)
        answers = allocate(requests, 1)
        return None if all(answers) else requests[answers.index(None)]

    def free(self, requests: Sequence[Any]) -> None:
        """See `Driver.free`."""
        free = self._manager.free
        for request in requests:
            free(request)

    def tables(self, requests: Sequence[Any]) -> None:
        """See `Driver.tables`."""
        read = self._manager.get_block_ids
        for request in requests:
            read(request.request_id)

    def take_events(self) -> Any:
        """See `Driver.take_events`."""
        return self._manager.take_events()

    def ran(self, requests: Sequence[Any], tokens: int) -> None:
        """See `Driver.ran`; and what the scheduler drains at the end of a step, before the next one begins."""
        self._manager.new_step_starts()
        for request in requests:
            request.num_computed_tokens += tokens
        if self._release.offers_boundary_states:
            self._manager.take_boundary_state_offloads()
        if self._release.copies:
            copies, retained = self._manager.take_kv_cache_block_copies()
            if copies:
                self._manager.block_pool.free_blocks(retained)

    def append(self, requests: Sequence[Any], token: int) -> None:
        """See `Driver.append`."""
        for request in requests:
            request.append_output_token_ids(token)

    def preempt(self, request: Any) -> None:
        """See `Driver.preempt`."""
        self._manager.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1

    def reset(self) -> bool:
        """See `Driver.reset`."""
        return bool(self._manager.reset_prefix_cache())

    def held(self, requests: Sequence[Any]) -> tuple[int, int]:
        """See `Driver.held`."""
        tables = [ids for request in requests for ids in self._manager.get_block_ids(request.request_id)]
        return sum(map(len, tables)), sum(block != NULL for ids in tables for block in ids)

    def removed(self, events: Any) -> int:
        """See `Driver.removed`."""
        return sum(len(event.block_hashes) for event in events if type(event).__name__ == "BlockRemoved")

    def fields(self, name: str, prompt: list[int], hash_name: str) -> Mapping[str, Any]:
        """See `Driver.fields`."""
        names, size = self._binding.names, self._shape.hash_block_size
        try:
            function = names("get_hash_fn_by_name")(hash_name)
            hasher = names("get_request_block_hasher")(size, function, **self._binding.hasher_options)
            fields = self._fields(name, prompt, hasher)
            self.make(fields)
        except (AttributeError, ImportError, KeyError, ValueError) as error:
            raise NotImplementedError(f"no hash function {hash_name} there: {error}") from error
        return fields

    def make(self, fields: Mapping[str, Any]) -> Any:
        """See `Driver.make`."""
        return self._binding.new_request(fields)

    def digests(self, request: Any) -> list[str]:
        """See `Driver.digests`."""
        return [bytes(digest).hex() for digest in request.block_hashes]

    def _fields(self, name: str, prompt: list[int], hasher: Any) -> Mapping[str, Any]:
        return self._binding.request_fields(Submit(name, ()), hasher, len) | {"prompt_token_ids": prompt}
