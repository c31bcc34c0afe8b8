"""Situations of a core with a pool of the host (`model.features.pools`), read off the model from outside."""

from collections import Counter

from ...model.features.pools import Pools
from ...model.ops import NULL


class PoolSituations:
    """Counts them."""

    def __init__(self, state: Pools, reached: Counter[str]) -> None:
        self._state, self._reached = state, reached
        self.hosted = self._state.source
        """The group whose blocks are in the pool of the host."""
        self._before: Counter[str] = Counter()

    def see(self) -> None:
        """The model has made a step."""
        state, now = self._state, Counter[str]()
        for of in state.pages.values():
            now["pools: page written back"] += len(of.whole)
            now["pools: page let go"] += len(of.let_go)
        for changed in state.changed.values():
            now["pools: page lost"] += [*changed.values()].count(NULL)
            now["pools: page taken up"] += len(changed) - [*changed.values()].count(NULL)
        now["pools: region"] = sum(map(len, (state.tables[group] for group in state.hot)))
        now["pools: load into the host"] = len(state.imports)
        now["pools: names behind a request's end"] = len({id(m.of) for m in state.moves if m.of.left is not None})
        for name, count in (now - self._before).items():
            self._reached[name] += count
        self._before = now
