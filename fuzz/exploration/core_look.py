"""What our core shows, as plain data, and whether its queue, its index and its blocks contradict each other."""

from collections.abc import Sequence
from typing import Any

from .contents import Contents
from .core_side import CoreSide
from .packing import NOBODY, Look


class CorruptStateError(Exception):
    """A side has left what a state can be; says how."""


class CoreLook:
    """Looks at one core from its construction to its end."""

    def __init__(self, core: CoreSide, contents: Contents, names: str) -> None:
        self.core, self.contents, self.names, self.mamba = core, contents, names, core.mamba
        self._managers, self._pool = core.managers, core.pool

    def shows(self, look: Look) -> bool:
        """True if our core shows exactly this: the same as `look() == look`, in a third of the time."""
        pool, contents = self._pool, self.contents
        blocks, core_keys = pool.blocks, contents.core_keys
        core_names: Sequence[Any] = contents.core_names
        counts, names = pool.ref_counts(), pool.identities()
        if counts != look.counts or names != [core_names[code] for code in look.codes]:
            return False
        index = pool.cached_block_hash_to_block
        registered = len(names) - names.count(None)
        for code, duplicates in look.duplicates.items():
            if [block.block_id for block in index.blocks_of(core_keys[code])] != duplicates:
                return False
            registered -= len(duplicates) - 1
        if len(index) != registered:
            return False
        for block, code in zip(blocks, look.codes, strict=True):
            if code and code not in look.duplicates and index.find(*core_names[code]) is not block:
                return False
        free = pool.free_block_queue
        if free.get_all_free_blocks() != [blocks[number] for number in look.queue]:
            return False
        try:
            pool.check()
        except AssertionError:
            return False
        live_of = self.core.live
        for name, (number, computed, scheduled) in zip(self.names, look.requests, strict=True):
            live = live_of.get(name)
            if live is None:
                if number:
                    return False
                continue
            request = live.request
            if (
                request.num_computed_tokens != computed
                or live.scheduled != scheduled
                or request.all_token_ids != contents.token_lists[number]
                or request.block_hashes != contents.hashes[number]
                or request.num_prompt_tokens != contents.sequences[number][1]
            ):
                return False
        for group, manager in enumerate(self._managers):
            if manager.num_cached_block != look.registered[group]:
                return False
            tables = {name: [b.block_id for b in table] for name, table in manager.req_to_blocks.items() if table}
            if tables != look.tables[group]:
                return False
        return not self.mamba or self._this_step() == look.this_step

    def _this_step(self) -> set[int]:
        """What mamba groups have registered in this step."""
        code_of = self.contents.code_of_core_name
        return {code_of[group, one] for group in self.mamba for one in self._managers[group].cached_blocks_this_step}

    def look(self) -> Look:
        """What our core shows. UnreadableError if its queue or its index contradict themselves."""
        pool, contents = self._pool, self.contents
        code_of = contents.code_of_core_name
        counts = pool.ref_counts()
        try:
            codes = [code_of[name] for name in pool.identities()]
            requests = []
            for name in self.names:
                live = self.core.live.get(name)
                if live is None:
                    requests.append(NOBODY)
                    continue
                request = live.request
                number = contents.number[request.num_prompt_tokens, tuple(request.all_token_ids)]
                if request.block_hashes != contents.hashes[number]:
                    raise CorruptStateError(f"the core gives {name} the hashes {request.block_hashes}")
                requests.append((number, request.num_computed_tokens, live.scheduled))
            duplicates = self._duplicates(codes)
            this_step = self._this_step()
        except KeyError as error:
            raise CorruptStateError(f"the core shows {error}") from None
        return Look(
            requests,
            [
                {name: [block.block_id for block in table] for name, table in manager.req_to_blocks.items() if table}
                for manager in self._managers
            ],
            [manager.num_cached_block for manager in self._managers],
            self._free_queue(),
            counts,
            codes,
            duplicates,
            this_step,
        )

    def _free_queue(self) -> list[int]:
        try:
            self._pool.free_block_queue.check()
        except AssertionError as error:
            raise CorruptStateError(f"the core's free queue contradicts itself: {error}") from None
        queue: list[int] = self._pool.free_ids()
        return queue

    def _duplicates(self, codes: list[int]) -> dict[int, list[int]]:
        """Contents with several blocks, from the index; it must have exactly the blocks that carry an identity."""
        index, keys = self._pool.cached_block_hash_to_block, self.contents.core_keys
        duplicates: dict[int, list[int]] = {}
        contents = sorted({code for code in codes if code})
        for code in contents:
            found = [block.block_id for block in index.blocks_of(keys[code])]
            if sorted(found) != [block for block, own in enumerate(codes) if own == code]:
                raise CorruptStateError(
                    f"the core's index has the blocks {found} for {keys[code]!r}, they carry {codes}"
                )
            if len(found) > 1:
                duplicates[code] = found
        if len(index) != len(contents):
            raise CorruptStateError(f"the core's index has {len(index)} contents, its blocks carry {len(contents)}")
        return duplicates
