"""The KV cache of a small engine: a radix tree of pages. Full attention, one pool, nobody is ever preempted.

What a request has computed is put into the tree when it ends, not before. Pages that hold the same as some that are in
the tree already are merged with these then. A node whose pages nobody uses is evicted as a whole, the one that was used
least recently first, so that more may be forgotten than is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Tokens = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """Some pages in a row. The path from the root says which tokens come before them."""

    parent: Node | None = None
    tokens: Tokens = ()
    pages: list[int] = field(default_factory=list)
    children: dict[Tokens, Node] = field(default_factory=dict)  # by the tokens of their first page
    locks: int = 0  # running requests whose tables have these pages
    used: int = 0  # when a lookup or an ending request passed by

    def path(self) -> Iterator[Node]:
        """The node and those above it, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class RadixTree:
    """Which pages hold which tokens."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.root = Node()
        self.evictable = 0  # pages that nobody uses
        self.clock = 0

    def match(self, tokens: Tokens) -> tuple[list[int], Node]:
        """The pages of the longest prefix that is in the tree, and the node with the last of them."""
        self.clock += 1
        node, pages, at = self.root, list[int](), 0
        while (child := node.children.get(tokens[at : at + self.page])) is not None:
            same = self.shared(child.tokens, tokens[at:])
            if same < len(child.tokens):
                child = self.split(child, same)
            child.used = self.clock
            pages += child.pages
            node, at = child, at + same
        return pages, node

    def shared(self, one: Tokens, other: Tokens) -> int:
        """Number of leading tokens, in whole pages, that both have."""
        end = 0
        while end < min(len(one), len(other)) and one[end : end + self.page] == other[end : end + self.page]:
            end += self.page
        return end

    def split(self, node: Node, at: int) -> Node:
        """Cut a node into two. Returns the upper one, which has its first `at` tokens."""
        assert node.parent is not None
        cut = at // self.page
        upper = Node(node.parent, node.tokens[:at], node.pages[:cut], locks=node.locks, used=node.used)
        node.parent.children[upper.tokens[: self.page]] = upper
        node.tokens, node.pages, node.parent = node.tokens[at:], node.pages[cut:], upper
        upper.children[node.tokens[: self.page]] = node
        return upper

    def insert(self, tokens: Tokens, pages: Sequence[int]) -> tuple[int, Node]:
        """Put whole pages into the tree. How many of them were there before, and the node with the last of them."""
        there, node = self.match(tokens)
        known = len(there)
        rest = tokens[known * self.page :]
        if rest:
            child = Node(node, rest, list(pages[known:]), used=self.clock)
            node.children[rest[: self.page]] = child
            self.evictable += len(child.pages)
            node = child
        return known, node

    def lock(self, node: Node) -> None:
        """A request uses these pages, and those before them."""
        for each in node.path():
            self.evictable -= len(each.pages) if each.locks == 0 else 0
            each.locks += 1

    def unlock(self, node: Node) -> None:
        """It uses them no more."""
        for each in node.path():
            each.locks -= 1
            self.evictable += len(each.pages) if each.locks == 0 else 0

    def evict(self, count: int) -> list[int]:
        """Forget whole nodes, until so many pages are free. These pages."""
        freed: list[int] = []
        while len(freed) < count:
            leaves = [node for node in self.nodes() if not node.children and not node.locks]
            oldest = min(leaves, key=lambda node: node.used)
            assert oldest.parent is not None
            del oldest.parent.children[oldest.tokens[: self.page]]
            self.evictable -= len(oldest.pages)
            freed += oldest.pages
        return freed

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root, parents before their children."""
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()


@dataclass(eq=False)
class Running:
    """What the engine knows of a request that runs."""

    node: Node  # the last one of its hit, which it has locked
    shared: int  # pages of the hit
    pages: list[int]


class RadixCache:
    """What the scheduler of the engine calls."""

    def __init__(self, num_pages: int, page: int, caching: bool = True) -> None:
        self.page = page
        self.caching = caching
        self.free = list(range(num_pages))
        self.tree = RadixTree(page)
        self.running: dict[str, Running] = {}

    @property
    def room(self) -> int:
        """Pages that can be handed out: the free ones, and those that can be evicted."""
        return len(self.free) + self.tree.evictable

    def lookup(self, tokens: Sequence[int]) -> tuple[list[int], Node]:
        """Pages of the longest prefix that is cached. At least one token is left to compute."""
        most = (len(tokens) - 1) // self.page * self.page
        return self.tree.match(tuple(tokens[:most]))

    def allocate(self, name: str, length: int, hit: tuple[list[int], Node] | None = None) -> list[int] | None:
        """Room for so many tokens, in a table that begins with the hit. The new pages; None, and no change, if there
        is none."""
        request = self.running.get(name)
        pages, node = hit or ([], self.tree.root)
        held = len(request.pages) if request is not None else len(pages)
        missing = max(0, -(-length // self.page) - held)
        self.tree.lock(node)  # what is hit cannot be evicted for it
        if missing > self.room:
            self.tree.unlock(node)
            return None
        new = self.take(missing)
        if request is None:
            self.running[name] = Running(node, len(pages), [*pages, *new])
        else:
            request.pages += new
        return new

    def take(self, count: int) -> list[int]:
        """So many pages; there is room for them."""
        if count > len(self.free):
            self.free += self.tree.evict(count - len(self.free))
        new, self.free = self.free[:count], self.free[count:]
        return new

    def finish(self, name: str, computed: Sequence[int]) -> None:
        """A request has ended, with these tokens computed: its full pages can be found from now on."""
        request = self.running.pop(name, None)
        if request is None:
            return
        kept = request.shared
        if self.caching:
            full = len(computed) // self.page
            known, _ = self.tree.insert(tuple(computed[: full * self.page]), request.pages[:full])
            self.free += request.pages[request.shared : known]  # the same as pages of others, who were first
            kept = max(full, request.shared)
        self.free += request.pages[kept:]
        self.tree.unlock(request.node)

    def clear(self) -> bool:
        """Forget everything, as after new weights. False, and no change, while a request runs."""
        if self.running:
            return False
        self.free += [page for node in self.tree.nodes() for page in node.pages]
        self.tree = RadixTree(self.page)
        return True
