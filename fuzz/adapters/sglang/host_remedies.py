"""What an SGLang without the known defects of its memory on the host does."""

from typing import Any


def evicts_only_what_is_enough(tree: Any) -> None:
    """Where not enough can be evicted from the host for what is to be copied there, nothing is. Of the Python core."""
    evict, core = tree.evict_host, tree.tree_core

    def evict_host(tokens: int, *kind: Any) -> int:
        return int(evict(tokens, *kind)) if _evictable(core) >= tokens else 0

    tree.evict_host = evict_host


def waits_for_copies(tree: Any, allocator: Any) -> None:
    """Who decodes and lacks room waits for what is being copied to the host, whose pages are locked so long."""
    has_room = allocator.check_decode_capacity

    def check_decode_capacity(**asked: Any) -> bool:
        if has_room(**asked):
            return True
        if not tree.ongoing_write_through:
            return False
        tree.writing_check(write_back=True)
        return bool(has_room(**asked))

    allocator.check_decode_capacity = check_decode_capacity


def _evictable(core: Any) -> int:
    """Tokens on the host that could be given up, leaf by leaf, and those that are on the device, too."""
    tokens = 0

    def may_go(node: Any) -> bool:
        nonlocal tokens
        children = [may_go(child) for child in node.children.values()]
        if node is core.root_node or node.component_data[0].host_value is None:
            return False
        if core.is_write_back and core._can_reclaim_full_host_duplicate(node):
            tokens += len(node.component_data[0].host_value)
            return False
        base = node.component_data[0]
        goes = all(children) and base.value is None and not base.host_lock_ref and not base.lock_ref
        tokens += len(base.host_value) if goes else 0
        return goes

    may_go(core.root_node)
    return tokens
