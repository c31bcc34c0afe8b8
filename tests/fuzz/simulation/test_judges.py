"""What judges an engine by what its clients get."""

import pytest
from blockproof.fuzz.simulation.contents import TokenContents
from blockproof.fuzz.simulation.judges import AGAIN, CAPACITY, FATE, PATIENCE, PROGRESS, QUIET, TOKENS, ClientJudge
from blockproof.fuzz.simulation.protocol import ClientRequest, Delivered, EngineView

REQUEST = ClientRequest("a", (1, 2, 3), 4)


def right(request: ClientRequest, many: int = 4) -> tuple[int, ...]:
    """What it gets alone."""
    contents = TokenContents(request)
    for _ in range(many):
        contents.extend((contents.next_token(),))
    return tuple(contents.tokens[len(request.prompt) :])


def judged(*delivered: Delivered, request: ClientRequest = REQUEST) -> list[tuple[str, str]]:
    judge = ClientJudge(16, samples=False)
    judge.add(request)
    judge.deliver(delivered)
    return judge.found


def test_right_tokens_in_any_portions():
    tokens = right(REQUEST)
    assert judged(Delivered("a", tokens, "length")) == []
    assert judged(Delivered("a", tokens[:1]), Delivered("a", tokens[1:3]), Delivered("a", tokens[3:], "length")) == []


@pytest.mark.parametrize(
    ("delivered", "judge", "said"),
    [
        ((Delivered("a", (7,)),), TOKENS, "a: gets token 7 at position 3, alone it gets"),
        ((Delivered("b", (7,)),), TOKENS, "b: something is delivered to nobody"),
        ((Delivered("a", right(REQUEST, 2), "length"),), TOKENS, "a: ends with length after 2 of 4 tokens"),
        ((Delivered("a", right(REQUEST, 2), "stop"),), TOKENS, "a: ends with stop, its last token is none of []"),
        ((Delivered("a", right(REQUEST, 5)),), TOKENS, "behind its end"),
        ((Delivered("a", right(REQUEST), "length"), Delivered("a", (1,))), TOKENS, "behind its end"),
        ((Delivered("a", ended="cancelled"),), FATE, "a: ends as cancelled, and nobody has cancelled it"),
    ],
)
def test_what_is_wrong_with_what_a_client_gets(delivered, judge, said):
    ((found, line),) = judged(*delivered)
    assert found == judge
    assert said in line


def test_a_stop_token_ends_it():
    tokens = right(REQUEST)
    request = ClientRequest("a", (1, 2, 3), 4, stop=(tokens[1],))
    upto = tokens[: tokens.index(tokens[1]) + 1]
    assert judged(Delivered("a", upto, "stop"), request=request) == []
    assert "behind its end" in judged(Delivered("a", tokens), request=request)[0][1]


def test_who_has_gone_is_owed_nothing():
    judge = ClientJudge(16, samples=False)
    judge.add(REQUEST).gone = True
    assert not judge.deliver([Delivered("a", (99,))])
    assert (judge.found, judge.live) == ([], [])


def test_a_name_that_is_used_again_gets_its_own_tokens():
    judge = ClientJudge(16, samples=False)
    judge.add(REQUEST).gone = True
    judge.add(ClientRequest("a", (3, 3), 2))
    judge.deliver([Delivered("a", right(ClientRequest("a", (3, 3), 2), 2), "length")])
    assert judge.found == []
    assert judge.reached["ids used again"] == 1


def test_tokens_under_new_weights_or_the_old_ones_in_flight():
    judge = ClientJudge(16, samples=False)
    judge.add(REQUEST)
    judge.reweigh()
    old, new = TokenContents(REQUEST).next_token(), TokenContents(REQUEST, 1).next_token()
    other = next(token for token in range(1, 6) if token not in (old, new))
    judge.deliver([Delivered("a", (other,))])
    assert len(judge.found) == 1
    for token in (old, new):
        fresh = ClientJudge(16, samples=False)
        fresh.add(REQUEST)
        fresh.reweigh()
        fresh.deliver([Delivered("a", (token,))])
        assert fresh.found == []


def test_nothing_happens_any_more():
    judge = ClientJudge(16, samples=False)
    judge.add(REQUEST)
    for _ in range(QUIET - 1):
        judge.round(computed=0, moved=False, waiting=False)
    judge.round(computed=1, moved=False, waiting=False)
    for _ in range(QUIET - 1):
        judge.round(computed=0, moved=False, waiting=False)
    assert judge.found == []
    judge.round(computed=0, moved=False, waiting=False)
    assert [found for found, _ in judge.found] == [PROGRESS]


def test_computing_for_ever_is_no_progress():
    judge = ClientJudge(16, samples=False)
    judge.add(REQUEST)
    for _ in range(PATIENCE + 4 * 7):
        judge.round(computed=3, moved=False, waiting=False)
    assert "again and again" in judge.found[0][1]


@pytest.mark.parametrize("every", [1, 4, 16])
def test_rounds_in_which_a_transfer_only_goes_on_are_not_computing_for_ever(every):
    judge, most = ClientJudge(16, samples=False), PATIENCE + 4 * 7
    judge.add(REQUEST)
    for number in range(most):
        judge.round(computed=number % every == 0, moved=False, waiting=True)
    assert bool(judge.found) == (most // every >= AGAIN)


def test_at_the_end_nobody_is_left_and_all_room_is_back():
    judge = ClientJudge(16, samples=False)
    judge.look(EngineView(8))
    judge.look(EngineView(8))
    judge.over(is_idle=True)
    assert judge.found == []
    judge.look(EngineView(7))
    judge.over(is_idle=False)
    assert [found for found, _ in judge.found] == [CAPACITY, CAPACITY]
    judge.add(REQUEST)
    judge.over(is_idle=True)
    assert judge.found[-1] == (PROGRESS, "a: never ends, the engine has nothing to do")


def test_what_an_engine_does_not_show_is_not_judged():
    judge = ClientJudge(16, samples=False)
    judge.look(None)
    judge.look(EngineView())
    assert not judge.reached["looks at an idle engine"]
