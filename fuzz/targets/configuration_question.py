"""A question of configuration arithmetic: its inputs as records, and what an answer that fails looks like."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar, TypeVar

from ...model.attention import CoreError
from ...model.config.capacity import Rules
from ...model.config_json import Config, Json, Layer, LayerGroup, Layers, plain, read_layer, record
from ...model.ops import Failed, Outcome

T = TypeVar("T")


def attempt(work: Callable[[], T]) -> T | dict[str, Json]:
    """What the call returns, or `{"raises": ...}` with the name of its error."""
    try:
        return work()
    except CoreError as error:
        return {"raises": str(error)}


def outcome_as_json(outcome: Outcome) -> Json:
    """What an operation came to: its value, or `{"raises": ...}`; None if it was refused."""
    return {"raises": outcome.error} if isinstance(outcome, Failed) else plain(getattr(outcome, "value", None))


class ConstructedQuestion:
    """The inputs of a question as records. Specs are constructed when they are used."""

    def __init__(self, rules: Rules, inputs: Mapping[str, object]) -> None:
        self.rules, self.given = rules, SimpleNamespace(**{"vllm_config": {}, **inputs})
        settings = rules.settings if isinstance(rules, OwnRules) else Config
        self.config = record(settings, self.given.vllm_config)

    @property
    def spec(self) -> Layer:
        """The one spec asked about."""
        return self.read(self.given.spec)

    @property
    def layers(self) -> Layers:
        """The layers of the model."""
        return self.named(self.given.layers)

    @property
    def groups(self) -> list[LayerGroup]:
        """The groups of the model."""
        return self.rules.groups(self.config, self.layers)

    def named(self, names: Sequence[tuple[str, str]]) -> Layers:
        """Layers by name, each with its spec from the table."""
        specs = {key: self.read(self.given.specs[key]) for key in dict.fromkeys(key for _, key in names)}
        return {name: specs[key] for name, key in names}

    def read(self, raw: Mapping[str, object]) -> Layer:
        """A spec from its JSON, constructed as the rules do it, its members first."""
        kind = self.rules.layer if isinstance(self.rules, OwnRules) else Layer
        return self._constructed(read_layer(raw, kind))

    def _constructed(self, x: Layer) -> Layer:
        members = tuple((name, self._constructed(member)) for name, member in x.kv_cache_specs)
        return self.rules.construct(replace(x, kv_cache_specs=members) if members else x)


class OwnRules(Rules):
    """Rules that are as good as those of the chapter, and answer some questions in another form."""

    settings: type[Config] = Config
    """The record of the settings that they read."""
    layer: type[Layer] = Layer
    """The record of a spec."""
    questions: ClassVar[Mapping[str, Callable[[Rules, ConstructedQuestion], Json]]] = {}
    """Answers in a form of their own, by op."""
