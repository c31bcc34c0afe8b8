"""Stories that the shadow memory is told: a model whose answers it sees, possibly tampered with on the way."""

import pytest
from blockproof.fuzz.oracles.shadow import Corruption, ListMemory, Shadow
from blockproof.model.core import Model
from blockproof.model.ops import (
    Group,
    Shape,
    Submit,
)


def shape(*groups, num_blocks=32, max_len=32, **fields):
    sizes = {group.block_size for group in groups}
    size = max(sizes)
    return Shape(groups, num_blocks, max_len, min(sizes), size, max_len, **fields)


class Story:
    """A model whose every answer the shadow memory sees, possibly tampered with on the way."""

    def __init__(self, of, new_memory=ListMemory, tamper=lambda operation, snapshot: None, policy=None, losses=()):
        self.model, self.tamper = Model(of, policy), tamper
        self.shadow = Shadow(of, new_memory, losses=losses)

    def __call__(self, *operations):
        for operation in operations:
            outcome, snapshot = self.model.step(operation)
            self.tamper(operation, snapshot)
            self.shadow.step(operation, outcome, snapshot)
        return self

    def corruption(self, *operations):
        with pytest.raises(Corruption) as caught:
            self(*operations)
        return str(caught.value)


FULL = shape(Group("full", 2))
A = Submit("a", (1, 2, 3, 4, 5))
