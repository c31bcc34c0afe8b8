"""Reference sliding window: a query reads the whole prompt of its request and, of the tokens generated since, itself
and the `w - 1` before it. Between the two lies a *gap*, which opens once more than a window was generated.

So the prompt's length, too, decides what is read, and what a generated token is: behind the gap it is none that the
same tokens would be in a longer prompt. For all other kinds the functions here say what the rule alone says.
"""

from collections.abc import Sequence

from .. import arith
from ..attention import Full, Rule
from ..identity import ExtraKey
from ..ops import NULL, Kind
from ..state import Request
from ..tables import Core, real

_KINDS: dict[Kind, str] = {"rswa": "full_attention"}


class ReferenceWindow(Full):
    """As full attention, but for the gap: hits have none, and the gate counts the whole length, as pools are sized
    for it."""

    kinds = _KINDS


def has_gap(rule: Rule) -> bool:
    """True if there is one between prompt and window."""
    return isinstance(rule, ReferenceWindow)


def gap(rule: Rule, prompt: int, c: int) -> tuple[int, int]:
    """From where to where, in tokens, no query at position `c` or later reads, of a request with so long a prompt."""
    if has_gap(rule):
        return prompt, max(prompt, arith.skipped_sliding(c, rule.w))
    return 0, max(0, rule.skipped(c))


def unread(rule: Rule, prompt: int, c: int) -> range:
    """The table entries that lie in the gap; these may be null."""
    start, end = gap(rule, prompt, c)
    return range(arith.cdiv(start, rule.b), end // rule.b)


def null_unread(core: Core, group: int, name: str, settled: int) -> None:
    """Entries that no query behind the settled tokens reads become null: drafts whose outcome is open are none of
    these tokens, so nothing has to stay for them."""
    table, prompt = core.state.tables[group].get(name, []), core.requests[name].submit.prompt
    dead = unread(core.rules[group], len(prompt), settled - core.rules[group].again)
    gone = table[dead.start : dead.stop]
    table[dead.start : dead.stop] = [NULL] * len(gone)
    core.state.let_go_by_identity(real(gone)[::-1])


def attends(rule: Rule, prompt: int, q: int, t: int) -> bool:
    """True if the query at position `q` reads the token at `t`."""
    start, end = gap(rule, prompt, q)
    return rule.attends(q, t) and not start <= t < end


def told_apart(rules: Sequence[Rule], prompt: int, position: int) -> bool:
    """True if the token at this position is another one in a longer prompt: in some layer its query, or one before it,
    has not read all that a query there would. Layers pass on what they have read, so this holds for every group."""
    gaps = [gap(rule, prompt, position) for rule in rules if has_gap(rule)]
    return any(start < end for start, end in gaps)


def prompt_key(core: Core, request: Request, end: int) -> tuple[ExtraKey, ...]:
    """What names the block that ends at this token besides: where the prompt ends, once that decides its content."""
    prompt = len(request.submit.prompt)
    return (("prompt", prompt),) if told_apart(core.rules, prompt, end - 1) else ()
