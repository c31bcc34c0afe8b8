"""How the cache is called in each release of SGLang: one record per release that changed something, and the calls.

Everything that no record mentions is called in every release as in the newest. The oldest release here is the first
whose requests keep their memory in a record of its own (`Req.kv`), which the adapter reads; the ones before it have
other caches by default (`RadixCache`, `SWARadixCache`, `MambaRadixCache`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class SglangRelease:
    """How the cache is called, from one release on."""

    since: str
    """The first version that is called like this."""
    request: Literal["slots", "lengths"] = "slots"
    """What a request keeps of its prefix and of its next step: the slots of the prefix, a range of positions and the
    receipt of its lock; or two lengths and the lock."""
    budget: Literal["adder", "allocator"] = "adder"
    """Who knows what a prefill may take: the scheduler's `PrefillAdder`, or a budget that the allocator makes."""
    tree: Literal["python", "either"] = "python"
    """Which core of the tree is driven. The way from the root to a node, which the table of a window is read from, is
    shown by both cores from 0.5.22 on; before that only the Python core has its nodes to look at."""
    stand_ins: tuple[str, ...] = ()
    """Packages that are imported, never called here, and put in place by empty modules if they are missing."""
    kernels: bool = False
    """It picks the slots of pages with Triton kernels on a CPU, too, so that they have to be replaced (`kernels`)."""
    registers_twice: bool = False
    """It registers models with a `transformers` that has them already, and has to be allowed to."""


RELEASES = (
    SglangRelease(since="0.5.20", stand_ins=("xgrammar",), kernels=True, registers_twice=True),
    SglangRelease(since="0.5.21", budget="allocator", stand_ins=("xgrammar",), kernels=True, registers_twice=True),
    SglangRelease(since="0.5.22", budget="allocator", request="lengths", tree="either"),
)
"""Oldest first; each holds until the next one."""


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, which sort by age."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("post")[0]))


def release_for(version: str) -> SglangRelease:
    """How this version is called. ImportError, with the reason, for one that the adapter does not know how to call."""
    known = [release for release in RELEASES if numbers(release.since) <= numbers(version)]
    if not known:
        raise ImportError(
            f"SGLang {version} is older than {RELEASES[0].since}: its requests keep their memory elsewhere, and its"
            " default caches are others"
        )
    return known[-1]


class CacheCalls:
    """The calls that differ between releases; the others are made where they are needed."""

    def __init__(self, release: SglangRelease, common: Any, policy: Any) -> None:
        """`common` is the release's `mem_cache.common`, `policy` its `managers.schedule_policy`."""
        self._release, self._common, self._policy = release, common, policy
        self._lengths = release.request == "lengths"

    # Requests.

    def prefix(self, request: Any) -> int:
        """Tokens that the request need not compute, when its next prefill begins."""
        return int(request.prefix_len) if self._lengths else len(request.prefix_indices)

    def prefix_slots(self, tree: Any, request: Any) -> Any:
        """The slots of the prefix that was matched, one for each token."""
        return tree.prefix_device_indices(request) if self._lengths else request.prefix_indices

    def refresh(self, request: Any) -> None:
        """The request takes note of the tokens that it has now."""
        (request.refresh_fill_ids if self._lengths else request._refresh_fill_ids)()

    def extends(self, request: Any, rows: Any, start: int, end: int) -> None:
        """The next prefill of the request is over these positions, those before it are in its row or its prefix."""
        if self._lengths:
            request.prefix_len, request.extend_end = start, end
            return
        if len(request.prefix_indices) != start:
            request.prefix_indices = rows.req_to_token[request.kv.req_pool_idx, :start].long()
        request.set_extend_range(start, end)

    def lock(self, tree: Any, node: Any) -> Any:
        """Lock the way to a node. Returns what unlocks it."""
        return tree.lock(node) if self._lengths else tree.inc_lock_ref(node).to_dec_params()

    def unlock(self, tree: Any, node: Any, lock: Any) -> None:
        """Undo `lock`."""
        if self._lengths:
            tree.unlock(lock)
        else:
            tree.dec_lock_ref(node, lock)

    def holds_lock(self, request: Any, lock: Any) -> None:
        """The lock on its last node is the request's from now on."""
        if self._lengths:
            request.lock = lock
        else:
            request.lock_receipt = lock

    def locked_node(self, request: Any) -> tuple[object, Any] | None:
        """What identifies the lock of a request, and the node that it is on; None where it covers no window."""
        if self._lengths:
            return None if request.lock is None or request.lock.swa_released else (request.lock, request.lock.node)
        if request.last_node is None or request.swa_prefix_lock_released:
            return None
        return (request.lock_receipt, request.last_node)

    def path(self, tree: Any, node: Any) -> list[tuple[int, int]]:
        """First position and end of every node on the way from the root to this one."""
        if self._release.tree == "either":
            (path,) = tree.tree_core.collect_path_info([node])
            return sorted((part.path_start, part.path_end) for part in path)
        lengths, core = list[int](), tree.tree_core
        at = core.node_by_id(node)
        while at is not core.root_node and at is not None:
            lengths.append(len(at.key))
            at = at.parent
        spans, start = list[tuple[int, int]](), 0
        for length in reversed(lengths):
            spans.append((start, start + length))
            start += length
        return spans[1:] if spans and spans[0] == (0, 0) else spans

    def publish(self, request: Any, tree: Any, *, chunked: bool = False) -> None:
        """Put the pages that a running request has computed into the tree."""
        if self._lengths:
            self._common.checkpoint_kv_cache(request, tree)
        else:
            self._common.maybe_cache_unfinished_req(request, tree, chunked=chunked)

    def release(self, request: Any, tree: Any, *, publish: bool) -> None:
        """Give back what a request holds, with its pages put into the tree if asked for."""
        name = "checkpoint" if self._lengths else "is_insert"
        self._common.release_kv_cache(request, tree, **{name: publish})

    # Budgets.

    def admits(self, cache: Any, request: Any, new: int, needed: int, known: int) -> bool:
        """True if the budget admits a request of `known` tokens that needs `needed` tokens more, with a first step of
        `new` tokens. Its prefix is locked while this is asked."""
        total = needed + cache.page
        if self._release.budget == "allocator":
            fits, chunk = cache.allocator.create_prefill_budget(cache.tree).check_prefill(
                extend_input_len=new,
                total_tokens=total,
                max_new_tokens=0,
                input_tokens=known,
                swa_host_hit_length=0,
                chunk_limit=new,
            )
            return bool(fits) and chunk >= new
        adder = self._adder(cache, new)
        if total >= adder.rem_total_tokens:
            return False
        if not cache.swa_pages:
            return True
        verdict, chunk = adder._swa_admission_gate(request, adder.ceil_paged_tokens(new), 0, new)
        return verdict is None and chunk >= new

    def continues(self, cache: Any, new: int) -> bool:
        """True if the budget has room for a further step of `new` known tokens."""
        if self._release.budget == "allocator":
            budget = cache.allocator.create_prefill_budget(cache.tree)
            paged = budget.ceil_paged_tokens(new) + cache.page
            return bool(
                budget.can_allocate_prefill(paged_input=paged, extend_input_len=new, max_new_tokens=0, chunk_limit=new)
            )
        adder = self._adder(cache, new)
        paged = adder.ceil_paged_tokens(new) + cache.page
        room = paged <= min(adder.cur_rem_tokens, adder.rem_total_tokens)
        return room and (not cache.swa_pages or adder._swa_budget_for_req(new, 0) <= adder.rem_swa_tokens)

    def _adder(self, cache: Any, chunk: int) -> Any:
        return self._policy.PrefillAdder(cache.page, cache.tree, cache.allocator, None, 1.0, 1 << 30, chunk)


def page_lengths(sizing: Any, requests: Sequence[Any], new: int, page: int) -> tuple[list[int], list[int], int]:
    """Slots that these requests have, will have with `new` tokens more behind the committed ones, and the difference in
    all; in whole pages."""
    lengths: tuple[list[int], list[int], int] = sizing.page_aligned_decode_alloc_lens(
        list(requests), reserve=new, page_size=page
    )
    return lengths
