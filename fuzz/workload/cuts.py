"""Takes away what a lookup would find: blocks of earlier requests and of hits, other ones in each group.

A hit of a hybrid ends where all groups can serve it. So one group gets a hole, another one ends about there, and the
request is looked up after each block that is lost.
"""

from collections.abc import Collection

from ...model import ops
from ...model.attention import RULES
from ...model.ops import Operation, Shape
from ...model.state import Request
from .bounds import holds_nothing
from .draw import Draw
from .past import Former
from .prompts import Prompts
from .scene import Scene
from .tuning import Tuning


class Cuts(Prompts):
    """Evicts blocks of the requests of one run. `Workload` adds what else becomes of them."""

    def __init__(self, draw: Draw, shape: Shape, lacks: Collection[str], tuning: Tuning) -> None:
        super().__init__(draw, shape, lacks, tuning)
        self._looks_up = self.has("Lookup")
        self._peels = draw.choose(tuning.peels) * self.has("Evict")
        self._sizes = [group.block_size * shape.parallel for group in shape.groups]
        groups = range(len(self._sizes))
        rules = [RULES[group.kind] for group in shape.groups]
        self._holed = [g for g in groups if not (rules[g].is_full or rules[g].scratch)] or [*groups]
        """Groups that can serve a hit behind a hole: their queries do not read all before them."""
        flagged = any(group.eagle for group in shape.groups)
        drafts = [group.eagle if flagged else shape.eagle for group in shape.groups]
        self._behind = [
            flag and RULES[group.kind].needs_behind for flag, group in zip(drafts, shape.groups, strict=True)
        ]
        """Whether a hit of the group needs the block behind it, too."""
        self._hole = 0
        """The group in which the last hole was made."""
        self._losing: tuple[str, int, Former | None] = ("", 0, None)
        """The request whose hits lose block after block, the group of which, and of whom it is a repetition."""

    def cut(self, scene: Scene) -> Operation | None:
        """Evict blocks that an earlier request has had, other ones in each group; then that request is sent again."""
        former = self._past.one(self.draw, scene, longest_of=2)
        blocks = () if former is None else self._cut_blocks(scene, former)
        self._next = former if blocks else None
        return ops.Evict(blocks) if blocks else None

    def _cut_blocks(self, scene: Scene, former: Former) -> tuple[int, ...]:
        """Registered blocks that a request has had: of one group all that a hit does not need which ends at some place,
        of another group one that it does need, or both. So the groups can serve hits of different lengths, and one has
        a hole where the other one ends."""
        draw, sizes, registered = self.draw, self._sizes, set(scene.state.identity.values())
        hole = draw.choose(self._holed) if draw.integer(0, 3) else draw.integer(0, len(sizes) - 1)
        end = self._another_group(hole)
        there = [{place for place, content in of.items() if content in registered} for of in former.contents]
        ends = [(place + 1) * sizes[end] for place in there[end]]
        ends = [tokens for tokens in ends if tokens // sizes[hole] in there[hole]] or ends
        ends = [tokens for tokens in ends if tokens % self._unit == 0] or ends
        if not ends:
            return ()
        self._hole = hole
        tokens, what = min(draw.choose(ends), draw.choose(ends)), draw.integer(0, 7)  # something lies behind a hole
        place = tokens // sizes[hole] - (draw.integer(0, 3) > (2 if self._behind[hole] else 0))
        lost = {former.contents[hole][place]} if what and place in there[hole] else set()
        if what not in (1, 2):
            first = tokens // sizes[end] + (self._behind[end] if draw.integer(0, 3) else draw.integer(0, 1))
            lost |= {former.contents[end][place] for place in there[end] if place >= first}
        return _with_any(scene, lost)

    def _another_group(self, group: int) -> int:
        """Mostly one that can serve a hit behind a hole, too: the others are asked first."""
        count = len(self._sizes)
        others = [other for other in self._holed if other != group]
        if others and self.draw.integer(0, 3):
            return self.draw.choose(others)
        return (group + self.draw.integer(1, max(1, count - 1))) % count

    def _probe(self, scene: Scene) -> Operation | None:
        """After a cut, the request that is to see it, if there is room for one more, and its lookup; mostly at once."""
        name, self._look = self._look, None
        if name is not None and name in scene.requests and holds_nothing(scene, name) and self._looks_up:
            return ops.Lookup(name)
        former = self._next
        if former is None or not self.draw.integer(0, 3):
            return None
        submit = self.submit(scene)
        if submit is None:
            return self.finish(scene)
        if self._look is not None:
            self._losing = self._look, self._another_group(self._hole), former
        return submit

    def _loses(self, scene: Scene, request: Request) -> Operation | None:
        """After a lookup: mostly evict a block of the hit, the last one of a group, then it is looked up again. Once
        begun, this goes on until nothing is found, so that the hit ends at each place in turn."""
        name = request.submit.request
        odds = self._tuning.ladder if self._losing[0] == name else self._peels
        if not request.hit or not request.hit[0] or self.draw.integer(0, 7) >= odds:
            return None
        rows = [[block for block in row if block] for row in request.hit[1]]
        if not any(rows):
            return None
        if self._losing[0] != name:
            self._losing = name, self.draw.integer(0, len(rows) - 1), None
        _, group, former = self._losing
        blocks = self._cut_blocks(scene, former) if former is not None and not self.draw.integer(0, 5) else ()
        row = rows[group] or next(row for row in rows if row)
        self._look = name
        if not blocks:
            block, identity = row[-1] if self.draw.integer(0, 5) else self.draw.choose(row), scene.state.identity
            blocks = _with_any(scene, {identity[block]}) if block in identity else (block,)
        return ops.Evict(blocks)


def _with_any(scene: Scene, contents: Collection[object]) -> tuple[int, ...]:
    """All blocks that hold one of these contents."""
    return tuple(block for block, content in scene.state.identity.items() if content in contents)
