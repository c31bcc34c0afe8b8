"""A model that is told a small story."""

from blockproof.model.ops import Failed


def told(model, *operations):
    """The outcome of the last of these operations, all of which are carried out."""
    outcomes = [model.step(operation)[0] for operation in operations]
    assert not any(isinstance(outcome, Failed) for outcome in outcomes), outcomes
    return outcomes[-1]
