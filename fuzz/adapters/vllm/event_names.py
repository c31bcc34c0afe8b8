"""How events name blocks: by numbers of 64 bits or by whole digests, made of the hashes of requests (core.md §3)."""

from collections.abc import Callable, Iterable, Sequence

from ....model.ops import Value


class EventNames:
    """Tells whether the names in events are made of hashes of full blocks, and in the right form."""

    def __init__(self, digests: bool, present: Callable[[], Iterable[bytes]]) -> None:
        """`digests`: events name blocks by whole digests. `present`: the hashes of all requests that are there."""
        self._digests = digests
        self._present = present
        self._known: set[object] = set()  # names of blocks as small as their hashes
        self._size = 1  # of a digest, in bytes

    def add(self, hashes: Iterable[bytes]) -> None:
        """Full blocks of requests have these hashes."""
        for digest in hashes:
            self._size = len(digest)
            self._known.add(digest if self._digests else int.from_bytes(digest[-8:], "big"))

    def odd(self, names: Sequence[object]) -> tuple[Value, ...]:
        """How many of these names are made of no hash, or in the other form; empty if none is."""
        if self._known.issuperset(names) or not (odd := self._unknown(names)):
            return ()
        self.add(self._present())  # a core may name the blocks of a request anew
        odd = self._unknown(odd)
        return (("odd names", len(odd)),) if odd else ()

    def _unknown(self, names: Sequence[object]) -> list[object]:
        return [name for name in names if not self._is_known(name)]

    def _is_known(self, name: object) -> bool:
        """True if it names a block. The digest of a larger block ends with that of the last small one in it."""
        if name in self._known:
            return True
        ends = isinstance(name, bytes) and self._digests and len(name) % self._size == 0
        return ends and isinstance(name, bytes) and name[-self._size :] in self._known
