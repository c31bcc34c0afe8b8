"""The arithmetic of configurations as a release has it: the record of the rules with some entries replaced.

Which deviation made a difference is found out, not written down beside each rule: an entry deviates where it gives
another result than the right rule, and a deviation counts for a question whose answer would be another without it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...model.attention import CoreError
from ...model.config.capacity import Rules
from ...model.config_json import Json
from .configuration_answers import answer

ERRORS = (CoreError, ZeroDivisionError, ValueError)
"""What a rule ends with where a core raises."""
Named: TypeAlias = Callable[..., str]


@dataclass(frozen=True)
class ReleasedRule:
    """What a release does in place of one rule."""

    rule: str
    released: Callable[..., Any]
    """Given the record and what the rule is given."""
    deviation: str | Named = ""
    """Id of the deviation that a difference is; or what tells it, given the record, the right result, the release's
    (`str` of an error) and what the rule is given. Empty if other entries account for the difference."""
    judged_with: tuple[str, ...] = ()
    """Other rules that are taken to be right where the right result is found; else all are the release's."""

    def name(self, *found: Any) -> str:
        """The deviation that this difference is."""
        return self.deviation if isinstance(self.deviation, str) else self.deviation(*found)


class ReleasedRules:
    """Answers as a release does, and tells by which deviations."""

    drawn: Mapping[str, Sequence[object]] = {}
    """Settings that only such a release has, with values of them."""
    asks: Sequence[str] = ()
    """Questions that only such a release can be asked (`configuration.today`)."""

    def __init__(self, entries: Sequence[ReleasedRule], kind: type[Rules] = Rules) -> None:
        """`kind`: the rules that are right."""
        self.fired: set[str] = set()
        """Ids of the deviations that made a difference since the set was last cleared."""
        self.seen: set[str] = set()
        """Ids of those that occurred on the way to the last answer, whether or not it depends on them."""
        self._entries = entries
        self._kind, self._right = kind, kind()
        self._known: dict[tuple[object, ...], _Outcome] = {}
        """What each rule came to on the way to this answer: most are asked for the same a dozen times."""
        self._mended = ""
        """The deviation that the release is taken not to have, for once."""
        self._judging: dict[tuple[str, ...], Rules] = {}
        self._counting = kind(**{entry.rule: self._counted(entry) for entry in entries})

    def answer(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The answer to a question; what made a difference to it is added to `fired`."""
        self.seen = set()
        self._known.clear()
        given = self._released(op, inputs)
        seen = frozenset(self.seen)
        if seen and given != self.right(op, inputs):
            alone = len(seen) == 1
            self.fired |= {one for one in seen if alone or self._without(one, op, inputs) != given} or seen
            self.seen = set(seen)
        elif "raises" in given and len(self._entries) > 1 and given != self.right(op, inputs):
            self.fired |= self._alone(op, inputs, given)
        return given

    def right(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The answer without deviations."""
        return answer(op, inputs, self._right)

    def asked(self, op: str, inputs: Mapping[str, object]) -> tuple[Mapping[str, object] | None, tuple[str, ...]]:
        """The question as such a release can be asked, None where it cannot be; and what it lacks of it."""
        return inputs, ()

    def _alone(self, op: str, inputs: Mapping[str, object], given: Mapping[str, Json]) -> set[str]:
        """The deviations each of which alone leads to this answer. An error may come before another deviation has
        shown, with which the right rule would have ended in the same error."""
        alone = [ReleasedRules([entry], self._kind) for entry in self._entries]
        return {name for rules in alone if rules.answer(op, inputs) == given for name in rules.fired}

    def _without(self, deviation: str, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        self._mended = deviation
        try:
            return self._released(op, inputs)
        finally:
            self._mended = ""

    def _released(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        try:
            return answer(op, inputs, self._counting)
        except ZeroDivisionError as error:
            return {"raises": type(error).__name__}

    def _counted(self, entry: ReleasedRule) -> Callable[..., Any]:
        """The entry, which notes where it differs from the right rule, and follows that one while it is mended."""
        right, judging = getattr(self._kind, entry.rule), self._judged_by(entry.judged_with)

        def outcome(record: Rules, *given: Any, **named: Any) -> _Outcome:
            wanted = _Outcome(lambda: right(judging, *given, **named))
            found = _Outcome(lambda: entry.released(record, *given, **named))
            if wanted.shown == found.shown:
                return found
            deviation = entry.name(judging, wanted.shown, found.shown, *given, *named.values())
            if deviation:
                self.seen.add(deviation)
            return wanted if deviation and deviation == self._mended else found

        def rule(record: Rules, *given: Any, **named: Any) -> Any:
            asked = (entry.rule, self._mended, given, *named.items())
            try:
                known = self._known.get(asked)
            except TypeError:  # what was given has no hash
                return outcome(record, *given, **named).result()
            if known is None:
                known = self._known[asked] = outcome(record, *given, **named)
            return known.result()

        return rule

    def _judged_by(self, right: tuple[str, ...]) -> Rules:
        """The release's rules but for these, without a look at what deviates."""
        if right not in self._judging:
            others = [one for one in self._entries if one.rule not in right]
            self._judging[right] = self._kind(**{one.rule: self._remembered(one, right) for one in others})
        return self._judging[right]

    def _remembered(self, entry: ReleasedRule, right: tuple[str, ...]) -> Callable[..., Any]:
        def rule(record: Rules, *given: Any, **named: Any) -> Any:
            asked = (right, entry.rule, given, *named.items())
            try:
                known = self._known.get(asked)
            except TypeError:
                return entry.released(record, *given, **named)
            if known is None:
                known = self._known[asked] = _Outcome(lambda: entry.released(record, *given, **named))
            return known.result()

        return rule


class _Outcome:
    """What a call came to."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.error: Exception | None = None
        try:
            self.shown = work()
        except ERRORS as error:
            self.error = error
            self.shown = str(error) if isinstance(error, CoreError) else type(error).__name__

    def result(self) -> Any:
        """The value, or the error again."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.shown
