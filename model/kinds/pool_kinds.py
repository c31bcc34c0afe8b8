"""Kinds of a core with a pool of the host (`pools`); none of them is there without the others."""

from collections.abc import Mapping

from .. import arith
from ..attention import RULES, Rule
from ..ops import Group, Kind, Shape


class Source(Rule):
    """Blocks in the host's pool, one for each page; what has no block there is not computed."""

    kinds: Mapping[Kind, str] = {"hosted": "mla_attention"}


class Resident(Rule):
    """Pages on the device. No hit needs one."""

    kinds: Mapping[Kind, str] = {"resident": "unknown"}
    scratch = True
    needs_behind = False

    def cap(self, lookahead: int = 0) -> int:
        """The pages of what may be in flight: others are written back."""
        return arith.cdiv(min(self.shape.max_num_batched_tokens, self.shape.max_model_len), self.b)


class Hot(Rule):
    """The region of a request that reads from the host: room for `window` tokens, whatever it has."""

    kinds: Mapping[Kind, str] = {"hot": "unknown"}
    scratch = True
    needs_behind = False

    def __init__(self, group: Group, shape: Shape, eagle: bool = False) -> None:
        super().__init__(group, shape, eagle)
        self.blocks = arith.cdiv(self.w, self.b)


def fits(shape: Shape) -> bool:
    """True for a shape without any of it, and for one that has all: first the blocks of the host, then layers that have
    all tokens on the device, pages, and regions; of equal blocks, without drafts, and nobody follows its events."""
    rules = [RULES[group.kind] for group in shape.groups]
    places = [rules.count(Source), sum(rule.is_full for rule in rules), rules.count(Resident), rules.count(Hot)]
    if not (shape.host_blocks or places[0] or places[2] or places[3]):
        return True
    equal = {shape.hash_block_size, *(group.block_size for group in shape.groups)}
    followed = shape.events or shape.sampling or shape.eagle or any(group.eagle for group in shape.groups)
    every = places[0] == 1 and all(places) and sum(places) == len(rules) and rules[0] is Source
    return every and len(equal) == 1 and not followed and shape.host_blocks > 1 and shape.parallel == 1
