"""Proposes smaller stories of an engine: fewer happenings, plainer requests, a smaller engine.

No more than data: whether a proposal still shows the finding is for others to say (`traces.reducer`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ...model.arith import cdiv
from ...model.ops import Group
from ..findings.story_finding import with_pieces_left_out
from ..kinds import KINDS
from .protocol import ClientRequest
from .story import Happening, SimulatedStory
from .traffic import room_for, shape_with

Proposals: TypeAlias = Callable[[SimulatedStory], Iterator[SimulatedStory]]


def smaller(story: SimulatedStory, block_sizes: Sequence[int] = ()) -> Iterator[SimulatedStory]:
    """All proposals, the boldest first; `block_sizes`: what an engine says that the blocks of its first group may
    have."""
    for simpler in PASSES:
        yield from simpler(story)
        if simpler is _fewer_happenings:  # with what is left of them other sizes do
            yield from _finer(story, block_sizes)


def _finer(story: SimulatedStory, block_sizes: Sequence[int]) -> Iterator[SimulatedStory]:
    """The same with smaller blocks: of all lengths in tokens a part is left, of a prompt one token of so many. So what
    shares blocks, or fills them, still does. Answers may stay as long, and all may happen sooner."""
    core = story.shape.core
    for size in sorted(block_sizes):
        parts, rest = divmod(core.groups[0].block_size, size)
        if parts < 2 or rest or any(group.block_size % parts for group in core.groups):
            continue
        groups = [_finer_group(group, parts) for group in core.groups]
        tokens = max(cdiv(core.max_num_batched_tokens, parts), story.shape.drafts + 2)
        for sooner, shorter in ((1, parts), (parts, parts), (1, 1), (parts, 1)):
            happenings = tuple(
                replace(
                    one,
                    at=one.at // sooner,
                    request=None if one.request is None else _finer_request(one.request, parts, shorter),
                )
                for one in story.happenings
            )
            jobs = [one.request for one in happenings if one.request is not None]
            length = max(cdiv(core.max_model_len, parts), *(len(job.prompt) + job.max_tokens for job in jobs))
            made = shape_with(groups, core.num_blocks, length, tokens, caching=core.caching)
            yield replace(story, shape=replace(story.shape, core=made), happenings=happenings)


def _finer_group(group: Group, parts: int) -> Group:
    said = {name: getattr(group, name) for name in KINDS[group.kind].needs}
    lengths: dict[str, Any] = {name: cdiv(length, parts) for name, length in said.items() if length}
    return replace(group, block_size=group.block_size // parts, **lengths)


def _finer_request(request: ClientRequest, parts: int, shorter: int) -> ClientRequest:
    prompt, external = request.prompt[::parts], cdiv(request.external, parts)
    return replace(request, prompt=prompt, max_tokens=cdiv(request.max_tokens, shorter), items=(), external=external)


def _with(story: SimulatedStory, happenings: tuple[Happening, ...]) -> SimulatedStory:
    """The story with these happenings; whom one is about must arrive or be forked."""
    names = {one.request.id for one in happenings if one.request is not None}
    names |= {one.new for one in happenings if one.new}
    return replace(story, happenings=tuple(one for one in happenings if not one.id or one.id in names))


def _fewer_happenings(story: SimulatedStory) -> Iterator[SimulatedStory]:
    for happenings in with_pieces_left_out(story.happenings):
        left = _with(story, happenings)
        if left.jobs:
            yield left


def _plain_engine(story: SimulatedStory) -> Iterator[SimulatedStory]:
    shape = story.shape
    if story.depth > 1:
        yield replace(story, depth=1)
        yield replace(story, depth=story.depth - 1)
    if shape.drafts:
        yield replace(story, shape=replace(shape, drafts=0))
        yield replace(story, shape=replace(shape, drafts=shape.drafts - 1))
    if story.delays and any(story.delays):
        yield replace(story, delays=(0,))
    if len(story.delays) > 1:
        yield replace(story, delays=story.delays[:1])
    if story.reports:
        yield replace(story, reports=())
        for number, one in enumerate(story.reports if len(story.reports) > 1 or story.reports[0] else ()):
            yield replace(story, reports=story.reports[:number] + story.reports[number + 1 :])
            if one:
                yield replace(story, reports=(*story.reports[:number], "", *story.reports[number + 1 :]))
    if story.network:
        yield replace(story, network=())
        for network in with_pieces_left_out(story.network):
            yield replace(story, network=network)
    for name in shape.options:
        left = {other: value for other, value in shape.options.items() if other != name}
        yield replace(story, shape=replace(shape, options=left))
    if shape.core.caching:
        yield replace(story, shape=replace(shape, core=replace(shape.core, caching=False)))


def _smaller_engine(story: SimulatedStory) -> Iterator[SimulatedStory]:
    shape, core = story.shape, story.shape.core
    groups = core.groups
    for left_out in range(len(groups)) if len(groups) > 1 else ():
        kept = groups[:left_out] + groups[left_out + 1 :]
        made = shape_with(kept, core.num_blocks, core.max_model_len, core.max_num_batched_tokens, caching=core.caching)
        yield replace(story, shape=replace(shape, core=made))
    for changes in _sizes(story):
        yield replace(story, shape=replace(shape, core=replace(core, **changes)))
    for many in (1, 2, shape.max_requests // 2, shape.max_requests - 1):
        if 0 < many < shape.max_requests:
            yield replace(story, shape=replace(shape, max_requests=many))


def _sizes(story: SimulatedStory) -> Iterator[dict[str, Any]]:
    """Smaller pools and limits; the room beyond one request of the greatest length stays as it was."""
    core = story.shape.core
    blocks, length = core.num_blocks, core.max_model_len
    longest = max(len(job.prompt) + job.max_tokens for job in story.jobs)
    if longest < length:
        saved = room_for(core.groups, length) - room_for(core.groups, longest)
        yield {"max_model_len": longest, "num_blocks": max(1, blocks - saved)}
        yield {"max_model_len": longest}
    tokens, prompts = core.max_num_batched_tokens, sum(len(job.prompt) for job in story.jobs)
    for fewer in sorted({longest, max(longest, prompts)}):  # with fewer, a prompt would take several steps
        if story.shape.drafts + 2 <= fewer < tokens and fewer >= story.shape.max_requests:
            yield {"max_num_batched_tokens": fewer}
    for fewer in (room_for(core.groups, length), (blocks + 1) // 2, blocks - 1):
        if 0 < fewer < blocks:
            yield {"num_blocks": fewer}


def _shorter_together(story: SimulatedStory) -> Iterator[SimulatedStory]:
    """All requests at once: what shares the beginning of a prompt still does."""
    longest = max(len(job.prompt) for job in story.jobs)
    size = story.shape.groups[0].block_size
    for many in sorted({longest // 2, 4 * size, size, 1} - {0}, reverse=True):
        yield from _all_requests(story, lambda job, many=many: _without_first(job, many))  # type: ignore[misc]
    yield from _all_requests(story, lambda job: replace(job, max_tokens=1))
    yield from _all_requests(story, lambda job: replace(job, max_tokens=max(1, job.max_tokens // 2)))
    for sooner in _sooner(story):  # who is to meet another one that runs
        yield from _all_requests(sooner, lambda job: replace(job, max_tokens=cdiv(job.max_tokens, 2)))
    yield from _all_requests(story, lambda job: replace(job, prompt=(1,) * len(job.prompt)))


def _all_requests(story: SimulatedStory, change: Callable[[ClientRequest], ClientRequest]) -> Iterator[SimulatedStory]:
    happenings = tuple(
        one if one.request is None else replace(one, request=change(one.request)) for one in story.happenings
    )
    if happenings != story.happenings:
        yield replace(story, happenings=happenings)


def _without_first(job: ClientRequest, many: int) -> ClientRequest:
    """Without so many of its first tokens, if there are more."""
    if len(job.prompt) <= many:
        return job
    items = tuple(replace(item, offset=item.offset - many) for item in job.items if item.offset >= many)
    return replace(job, prompt=job.prompt[many:], items=items, external=max(0, job.external - many))


def _plain_tokens(one: Happening) -> Iterator[Happening]:
    """Its tokens are all the same; or those of a piece, a fourth at least, of few each."""
    request = one.request
    if request is None:
        return
    prompt = request.prompt
    width = len(prompt)
    while width > len(prompt) // 8:
        for first in range(0, len(prompt), width):
            piece = prompt[first : first + width]
            if piece.count(1) < len(piece):
                plain = (*prompt[:first], *(1,) * len(piece), *prompt[first + width :])
                yield replace(one, request=replace(request, prompt=plain))
        width //= 2


def _each(change: Callable[[Happening], Iterator[Happening]]) -> Proposals:
    def simpler(story: SimulatedStory) -> Iterator[SimulatedStory]:
        for number, one in enumerate(story.happenings):
            for changed in change(one):
                yield replace(story, happenings=(*story.happenings[:number], changed, *story.happenings[number + 1 :]))

    return simpler


PLAIN: Mapping[str, Any] = {
    "stop": (),
    "priority": 0,
    "adapter": None,
    "adapter_version": 0,
    "salt": None,
    "items": (),
    "external": 0,
}
"""What a request without anything special has in its fields."""


def _plain_requests(story: SimulatedStory) -> Iterator[SimulatedStory]:
    """Something special is taken from all requests at once."""
    for name, value in PLAIN.items():
        if any(getattr(job, name) != value for job in story.jobs):
            yield replace(
                story,
                happenings=tuple(
                    one if one.request is None else replace(one, request=replace(one.request, **{name: value}))
                    for one in story.happenings
                ),
            )


def _plain(one: Happening) -> Iterator[Happening]:
    if one.request is not None:
        for name, value in PLAIN.items():
            if getattr(one.request, name) != value:
                yield replace(one, request=replace(one.request, **{name: value}))
    if one.flying:
        yield replace(one, flying=False)
    if one.rights:
        yield replace(one, rights=())
    if one.patience:
        yield replace(one, patience=0)
    if one.patience > 1:
        yield replace(one, patience=one.patience - 1)
    if one.then:
        yield replace(one, then=one.then[:-1])
    if one.rounds > 1:
        yield replace(one, rounds=1)
        yield replace(one, rounds=one.rounds - 1)


def _short(one: Happening) -> Iterator[Happening]:
    request = one.request
    if request is None:
        return
    for answer in (1, request.max_tokens // 2, request.max_tokens - 1):
        if 0 < answer < request.max_tokens:
            yield replace(one, request=replace(request, max_tokens=answer))
    for length in (1, len(request.prompt) // 2, len(request.prompt) - 4, len(request.prompt) - 1):
        if 0 < length < len(request.prompt):
            yield replace(one, request=_cut(request, length))
    if len(request.prompt) > 1:
        yield replace(one, request=_without_first(request, 1))


def _cut(request: ClientRequest, length: int) -> ClientRequest:
    items = tuple(item for item in request.items if item.offset + item.length <= length)
    return replace(request, prompt=request.prompt[:length], items=items, external=min(request.external, length))


def _sooner(story: SimulatedStory) -> Iterator[SimulatedStory]:
    """Earlier, and in the order in which they stand."""
    for divisor in (0, 2):
        if any(one.at for one in story.happenings):
            yield replace(
                story,
                happenings=tuple(replace(one, at=one.at // divisor if divisor else 0) for one in story.happenings),
            )


def _sooner_each(story: SimulatedStory) -> Iterator[SimulatedStory]:
    """With the one before it; or one step earlier, with all that come behind it."""
    for number, one in enumerate(story.happenings):
        if one.at > (story.happenings[number - 1].at if number else 0):
            alone = replace(one, at=story.happenings[number - 1].at if number else 0)
            yield replace(story, happenings=(*story.happenings[:number], alone, *story.happenings[number + 1 :]))
            later = tuple(replace(other, at=other.at - 1) for other in story.happenings[number:])
            yield replace(story, happenings=(*story.happenings[:number], *later))


PASSES: tuple[Proposals, ...] = (
    _plain_requests,
    _plain_engine,
    _fewer_happenings,
    _shorter_together,
    _smaller_engine,
    _each(_plain),
    _each(_short),
    _each(_plain_tokens),
    _sooner,
    _sooner_each,
)
"""Passes, the boldest first."""
