"""What an engine does with the attempts that a router gives it."""

from collections.abc import Mapping
from typing import Any

import pytest
from blockproof.fuzz.simulation.attempts import BEAT, Abort, Alive, AttemptsHalf, Serve, TokensTold
from blockproof.fuzz.simulation.network import HALVES, Half, Network, Port
from blockproof.fuzz.simulation.protocol import ClientRequest, Ended

REQUEST = ClientRequest("a", (1, 2), 3)


class NotingHalf(AttemptsHalf):
    """Notes what its scheduler is told."""

    def __init__(self, name: Half, life: int = 0) -> None:
        self.network = Network(100)
        super().__init__(Port(self.network, name, life))
        self.told: list[object] = []

    def _serve(self, name: str, request: ClientRequest, parameters: Mapping[str, Any]) -> bool:
        self.told.append((name, parameters))
        return not parameters

    def _stop(self, name: str) -> None:
        self.told.append(f"stop {name}")

    def _hear(self, message: Any) -> None:
        self.told.append(message)

    def sent(self) -> list[Any]:
        return [one.message for one in self.network.tick()]


@pytest.mark.parametrize("name", HALVES)
def test_an_attempt_is_served_once_and_ends_where_a_newer_one_comes(name: Half) -> None:
    half = NotingHalf(name)
    for attempt in (1, 1, 3, 2):
        half.receive("router", Serve(REQUEST, attempt, {}))
    assert half.told == [("a/1", {}), "stop a/1", ("a/3", {})]


def test_an_attempt_that_is_aborted_is_not_served_behind_that() -> None:
    half = NotingHalf("decode")
    half.receive("router", Abort("a", 2))
    half.receive("router", Serve(REQUEST, 2, {}))
    half.receive("prefill", "a word")
    assert half.told == ["a word"]


def test_who_is_refused_is_not_held() -> None:
    half = NotingHalf("decode")
    half.receive("router", Serve(REQUEST, 1, {"no": "room"}))
    half.receive("router", Abort("a", 1))
    assert half.told == [("a/1", {"no": "room"})]
    assert half.sent() == [TokensTold("a", 1, (), "refused")]


def test_the_router_hears_of_all_tokens_from_one_engine_and_of_ends_from_both() -> None:
    for name in HALVES:
        half = NotingHalf(name)
        half.receive("router", Serve(REQUEST, 1, {}))
        ends: tuple[Ended, ...] = ("", "stop", "stop")
        for ended in ends:
            half._tell_tokens("a/1", (7,), ended)
        told = [TokensTold("a", 1, (7,)), TokensTold("a", 1, (7, 7), "stop")]
        assert half.sent() == (told if name == "decode" else told[1:])
    half.receive("router", Serve(REQUEST, 2, {}))
    half._fail("a/2")
    half._fail("a/2")
    assert (half.told[-1], half.sent()) == ("stop a/2", [TokensTold("a", 2, (), "failed")])


def test_a_new_life_and_what_is_worked_on_are_told_again_and_again() -> None:
    half, heard = NotingHalf("prefill", life=2), list[Any]()
    for _ in range(2 * BEAT):
        half._tell_alive()
        heard += half.sent()
    assert heard == [Alive(2, ())]
    half.receive("router", Serve(REQUEST, 1, {}))
    for _ in range(2 * BEAT):
        half._tell_alive()
        heard += half.sent()
    assert heard[1:] == 2 * [Alive(2, (("a", 1),))]
