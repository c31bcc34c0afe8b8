"""Mistakes that authors of radix trees make, each a small change of the source of examples/my-radix-engine."""

from collections.abc import Mapping
from typing import NamedTuple


class Mistake(NamedTuple):
    """A change of the engine's source."""

    what: str
    old: str
    new: str


MISTAKES: Mapping[str, Mistake] = {
    "split-loses-locks": Mistake(
        "the upper half of a node that is split is locked by nobody",
        "node.pages[:cut], locks=node.locks, used",
        "node.pages[:cut], used",
    ),
    "split-keeps-parent": Mistake(
        "the lower half of a node that is split still has the old parent, so that the upper one is never unlocked",
        "node.tokens, node.pages, node.parent = node.tokens[at:], node.pages[cut:], upper",
        "node.tokens, node.pages = node.tokens[at:], node.pages[cut:]",
    ),
    "split-cuts-a-page-late": Mistake(
        "a node is split with a page too many in its upper half",
        "cut = at // self.page\n",
        "cut = at // self.page + 1\n",
    ),
    "locks-the-leaf-only": Mistake(
        "a request locks the last node of its hit, not those above it",
        "        for each in node.path():\n            self.evictable -=",
        "        for each in [node][: node.parent is not None]:\n            self.evictable -=",
    ),
    "unlocks-the-leaf-only": Mistake(
        "a request that ends unlocks the last node of its hit, not those above it",
        "        for each in node.path():\n            each.locks -= 1",
        "        for each in [node][: node.parent is not None]:\n            each.locks -= 1",
    ),
    "hit-not-locked": Mistake(
        "what is hit is not locked before room is made for the rest",
        "        self.tree.lock(node)  # what is hit cannot be evicted for it\n",
        "",
    ),
    "locks-after-counting": Mistake(
        "what is hit counts as room, and is locked only after that",
        "        self.tree.lock(node)  # what is hit cannot be evicted for it\n        if missing > self.room:\n"
        "            self.tree.unlock(node)\n            return None\n",
        "        if missing > self.room:\n            return None\n        self.tree.lock(node)\n",
    ),
    "refusal-keeps-the-lock": Mistake(
        "a refused request keeps its hit locked",
        "            self.tree.unlock(node)\n            return None",
        "            return None",
    ),
    "evicts-locked-nodes": Mistake(
        "eviction does not ask whether a request uses a node",
        "if not node.children and not node.locks]",
        "if not node.children]",
    ),
    "evicts-inner-nodes": Mistake(
        "eviction takes nodes with children, which nobody finds from then on",
        "if not node.children and not node.locks]",
        "if not node.locks]",
    ),
    "evicted-node-stays-found": Mistake(
        "an evicted node stays in the tree, and its pages are found though others have them",
        "            del oldest.parent.children[oldest.tokens[: self.page]]\n",
        "",
    ),
    "evicted-page-counted-once": Mistake(
        "eviction takes one page off the count for each node, however many it has",
        "            self.evictable -= len(oldest.pages)\n            freed",
        "            self.evictable -= 1\n            freed",
    ),
    "evicts-the-rest-away": Mistake(
        "of the pages of an evicted node only those that are needed become free",
        "            freed += oldest.pages\n",
        "            freed += oldest.pages[: count - len(freed)]\n",
    ),
    "merge-frees-the-hit": Mistake(
        "at the end all pages that were in the tree are freed, those of the request's own hit as well",
        "request.pages[request.shared : known]",
        "request.pages[:known]",
    ),
    "merge-frees-nothing": Mistake(
        "pages that hold the same as others in the tree are not freed",
        "            self.free += request.pages[request.shared : known]",
        "           ",
    ),
    "insert-replaces-pages": Mistake(
        "the tree takes over the pages of who comes second, while others use those of the first",
        "        known = len(there)\n",
        "        known = at = len(there)\n        for each in node.path():\n            at -= len(each.pages)\n"
        "            each.pages = list(pages[at : at + len(each.pages)])\n",
    ),
    "publishes-a-page-too-many": Mistake(
        "the last page of a request is published before it is full",
        "            full = len(computed) // self.page\n",
        "            full = min(-(-len(computed) // self.page), len(request.pages))\n",
    ),
    "tail-leaks": Mistake(
        "the page that is not full is not given back",
        "        self.free += request.pages[kept:]\n",
        "        self.free += request.pages[kept + 1 :]\n",
    ),
    "hits-the-last-token": Mistake(
        "a hit may be the whole prompt, so that nothing is left to compute",
        "        most = (len(tokens) - 1) // self.page * self.page\n",
        "        most = len(tokens) // self.page * self.page\n",
    ),
    "first-token-decides": Mistake(
        "a page is taken for another one that begins with the same token",
        "one[end : end + self.page] == other[end : end + self.page]",
        "one[end : end + 1] == other[end : end + 1]",
    ),
    "inserted-by-first-token": Mistake(
        "a new node stands in its parent under its first token instead of its first page",
        "            node.children[rest[: self.page]] = child\n",
        "            node.children[rest[:1]] = child\n",
    ),
    "grows-a-page-late": Mistake(
        "a page is added only when the one before it is more than full",
        "missing = max(0, -(-length // self.page) - held)",
        "missing = max(0, -(-(length - 1) // self.page) - held)",
    ),
    "clear-with-requests": Mistake(
        "everything is forgotten though requests run",
        "        if self.running:\n            return False\n",
        "",
    ),
    "clear-loses-pages": Mistake(
        "the pages of the tree are not free after everything was forgotten",
        "        self.free += [page for node in self.tree.nodes() for page in node.pages]\n",
        "",
    ),
}
