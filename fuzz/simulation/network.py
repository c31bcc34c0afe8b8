"""The network and the clock between the two halves of a pair and their router (`pair`): messages that come late, twice
or never, links that are cut, halves that crash. All of it is drawn, and stands in the story.

A message takes a round. One that is late is overtaken by those behind it.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from ..kinds.draw import Draw

Half: TypeAlias = Literal["prefill", "decode"]
Node: TypeAlias = Literal["router", "prefill", "decode"]
HALVES: tuple[Half, Half] = ("prefill", "decode")
NODES: tuple[Node, ...] = ("router", *HALVES)
LINKS = tuple(f"{one}>{other}" for one in NODES for other in NODES if one != other)
"""From whom to whom."""
PLACES = (*HALVES, *LINKS)
"""What may be cut off: all links of a half, or one link."""
LOST = ("lost",)
LATE = ("late 1", "late 2", "late 5", "late 12", "late 40", "late 80")
TWICE = ("twice 0", "twice 2", "twice 8", "twice 20", "twice 30")
"""What may become of a message: it never comes; it comes so many rounds late; it comes once more, so many rounds after
the first time."""
DOWN = (1, 1, 1, 2, 5, 12, 40, 80)
"""For how many rounds a half is down, or a link is cut."""
WITHIN = (4, 20, 100)
"""How many rounds after the arrival of a request that happens at most."""


class Mishap(NamedTuple):
    """What becomes of one message."""

    what: Literal["lost", "late", "twice"]
    rounds: int

    def __str__(self) -> str:
        return self.what if self.what == "lost" else f"{self.what}, {self.rounds} rounds"


class NetworkMessage(NamedTuple):
    """A message on its way."""

    sender: str
    to: str
    message: Any


class NetworkNews(NamedTuple):
    """Something that happened on the network, to be told in words."""

    what: str
    about: object = ""

    def __str__(self) -> str:
        return f"{self.what}{self.about}"


def mishaps_of(faults: Iterable[str]) -> dict[tuple[str, int], Mishap]:
    """By link and number of the message on it, from 0 on. ValueError for what is no fault, as in `router>decode 3 lost`
    or `decode>prefill 0 late 5`."""
    found: dict[tuple[str, int], Mishap] = {}
    for text in faults:
        match text.split():
            case [link, number, "lost"] if link in LINKS and number.isdecimal():
                found[link, int(number)] = Mishap("lost", 0)
            case [link, number, ("late" | "twice") as what, many] if link in LINKS and (number + many).isdecimal():
                found[link, int(number)] = Mishap("late" if what == "late" else "twice", int(many))
            case _:
                raise ValueError(f"no fault of a network: {text!r}; expected such as 'router>decode 3 late 5'")
    return found


def draw_faults(draw: Draw) -> tuple[str, ...]:
    """What becomes of messages in one story: nothing in one of three; else on all links or on a few, of all
    kinds or of one."""
    many, far = draw.choose((0, 0, 4, 12, 40, 40)), draw.choose((3, 10, 30))
    one, other = draw.choose(LINKS), draw.choose(LINKS)
    links = draw.choose((LINKS, (one,), (one,), (one, other)))
    words = draw.choose(((*LOST * 3, *LATE, *TWICE), LOST, LATE, TWICE, TWICE))
    return tuple(f"{draw.choose(links)} {draw.integer(0, far)} {draw.choose(words)}" for _ in range(many))


@dataclass
class _Late:
    """A message that is under way."""

    due: int
    what: NetworkMessage
    is_odd: bool
    """It comes otherwise than it should."""


class Network:
    """The network of one pair, from its start on. Mishaps come to an end, since the story does."""

    def __init__(self, timeout: int, *, gives_up: bool = False) -> None:
        """`timeout`: rounds after which the pair has noticed what was lost, and has begun to mend it. `gives_up`: a
        request that is met by a mishap may end as `failed`; else it must be served."""
        self.timeout, self.gives_up = timeout, gives_up
        self.now = 0
        """The round."""
        self.lives: dict[str, int] = dict.fromkeys(HALVES, 0)
        """How often each half has crashed."""
        self.counts: Counter[str] = Counter()
        self.news: deque[NetworkNews] = deque(maxlen=200)
        """What has happened; to be emptied by who tells it."""
        self._mishaps: dict[tuple[str, int], Mishap] = {}
        self._sent: Counter[str] = Counter()
        self._under_way: list[_Late] = []
        self._down: dict[str, int] = {}
        self._cut: dict[str, int] = {}
        self._troubled_until = 0

    def begin(self, faults: Iterable[str]) -> None:
        """This will become of messages. ValueError as from `mishaps_of`."""
        self._mishaps = mishaps_of(faults)

    @property
    def troubled(self) -> bool:
        """True until what was lost must have been noticed."""
        return self.now < self._troubled_until

    @property
    def may_give_up(self) -> bool:
        """True if something has happened for which requests may end as `failed`."""
        return self.gives_up and self._troubled_until > 0

    @property
    def is_clear(self) -> bool:
        """True if no half is down, and no message is late."""
        return not any(map(self.is_down, HALVES)) and not any(one.is_odd for one in self._under_way)

    def is_down(self, node: str) -> bool:
        """True until a half that has crashed begins anew."""
        return self.now < self._down.get(node, 0)

    # What happens to it.

    def crash(self, half: str, rounds: int) -> None:
        """Its process ends, with its memory; it begins anew in so many rounds, one at least."""
        self._down[half] = self.now + 1 + max(1, rounds)
        self.lives[half] += 1
        self._trouble(1 + max(1, rounds))
        self.news.append(NetworkNews(f"{half} crashes; down for {max(1, rounds)} rounds"))

    def part(self, place: str, rounds: int) -> None:
        """All links of a half, or one link, lose every message for so many rounds."""
        for link in LINKS:
            if place == link or place in link.split(">"):
                self._cut[link] = max(self._cut.get(link, 0), self.now + 1 + rounds)
        self._trouble(1 + rounds)
        self.news.append(NetworkNews(f"{place} is cut off for {rounds} rounds"))

    def _trouble(self, rounds: int) -> None:
        self._troubled_until = max(self._troubled_until, self.now + rounds + self.timeout)

    # Messages.

    def send(self, sender: str, to: str, message: Any) -> None:
        """A message, which is due in the next round unless something becomes of it."""
        link = f"{sender}>{to}"
        number, what = self._sent[link], NetworkMessage(sender, to, message)
        self._sent[link] += 1
        self.counts["messages"] += 1
        mishap = self._mishaps.get((link, number))
        if self.now < self._cut.get(link, 0):
            mishap = Mishap("lost", 0)
            self.counts["messages lost at a cut"] += 1
        if mishap is None:
            self._under_way.append(_Late(self.now + 1, what, False))
            return
        self._trouble(1 + mishap.rounds)
        self.counts[f"messages {mishap.what}"] += 1
        self.news.append(NetworkNews(f"{link} {number} is {mishap}: ", message))
        if mishap.what == "twice":
            self._under_way.append(_Late(self.now + 1, what, False))
        if mishap.what != "lost":
            self._under_way.append(_Late(self.now + 1 + mishap.rounds, what, True))

    def tick(self) -> Iterator[NetworkMessage]:
        """A round begins: the messages that arrive, in the order in which they were sent. Those to a half that is down
        are lost."""
        self.now += 1
        due = [one for one in self._under_way if one.due <= self.now]
        self._under_way = [one for one in self._under_way if one.due > self.now]
        for one in due:
            if self.is_down(one.what.to):
                self.counts["messages to a half that is down"] += 1
                self._trouble(0)
                self.news.append(NetworkNews(f"{one.what.to} is down, and does not get ", one.what.message))
                continue
            self.news.append(NetworkNews(f"{one.what.sender}>{one.what.to}: ", one.what.message))
            yield one.what


class Port:
    """What one node sees of the world: the clock, and the network."""

    def __init__(self, network: Network, name: Node, life: int = 0) -> None:
        self._network, self.name, self.life = network, name, life
        """`life`: how often it has crashed before."""

    @property
    def now(self) -> int:
        """The round; one clock for all."""
        return self._network.now

    def send(self, to: Node, message: Any) -> None:
        """Send a message, which may come late, twice or never."""
        self._network.send(self.name, to, message)
