"""The requests of a run: what their prompts are made of, and what they say of themselves."""

from collections.abc import Collection

from ...model import ops
from ...model.ops import Operation, Shape
from ...model.state import Request
from .bounds import FIRST_ITEMS, ITEMS, item_named, tokens_of, without_rows
from .draw import Draw, made
from .past import Former, Past, items_within, with_another_item, with_another_row
from .scene import Scene
from .tuning import Tuning

NO_ADAPTER: tuple[str | None, str] = (None, "")
ADAPTERS: tuple[tuple[str | None, str], ...] = (NO_ADAPTER, NO_ADAPTER, ("x", ""), ("y", ""), ("x", "1"))
"""Name, and what it says of its weights: one was loaded twice under its name."""
SALTS = ("x", "z")
"""One name is an adapter and a salt, so that identities which confuse the two collide (vllm-project/vllm#44701)."""
SAID = (("adapter", "salt", "items", "embeds"), ("items",), ("items",), ("adapter", "salt"), ("embeds",))
"""What requests of one run say of themselves: mostly one thing, so that two often agree in all the others."""


class Prompts:
    """Submits the requests of one run, some of them again. `Workload` adds what becomes of them."""

    def __init__(self, draw: Draw, shape: Shape, lacks: Collection[str], tuning: Tuning) -> None:
        self.draw = draw
        self.shape = shape
        self._tuning = tuning
        self._lacks = frozenset(lacks)
        self._submitted = 0
        self._max_live = draw.choose((1, 2, 3, 5, 8))
        self._alphabet = draw.choose((1, 2, 3))
        self._families = [self._tokens(shape.max_model_len) for _ in range(3)]
        """Prefixes that requests share; the first is used most often."""
        self._unit = shape.scheduler_block_size if len(shape.groups) > 1 else shape.hash_block_size
        """Hits end at multiples of so many tokens."""
        self._past, self._again = Past(), draw.choose(tuning.again)
        self._remembers = bool(self._again or tuning.cuts)
        self._answers: dict[str, tuple[int, ...]] = {}
        """Of requests that were sent again all tokens of the earlier one: what is sampled is mostly the same again."""
        self._next: Former | None = None
        """The request of which blocks were just evicted: the next one that is sent again."""
        self._look: str | None = None
        """A request that was sent again, until it is looked up."""
        self._features = draw.integer(0, 7) < tuning.features and shape.caching
        self._said = draw.choose(SAID) if self._features else ()
        self._layouts = [self._layout(crowded) for crowded in (False, True)] if self._says("items") else []
        """Places of multimodal items. Prompts have different items in the same places, so identities collide if a core
        loses the key of an item."""

    def _says(self, what: str) -> bool:
        """True if requests of this run say this of themselves (a field of `Submit`)."""
        return what in self._said and self.has(f"Submit.{what}")

    def has(self, name: str) -> bool:
        """True if the target has this (a name of `declarations.LACKS`)."""
        return name not in self._lacks

    def _tokens(self, count: int) -> tuple[int, ...]:
        """Tokens made of one drawn number: one draw per token would take most of the time under Hypothesis."""
        return tokens_of(self.draw.integer(0, self._alphabet**count - 1), count, self._alphabet)

    def submit(self, scene: Scene) -> Operation | None:
        """A new request, mostly with the most used prefix or a part of it."""
        if len(scene.requests) >= self._max_live:
            return None
        draw, max_len = self.draw, self.shape.max_model_len
        if self._next is not None or draw.integer(0, 7) < self._again:
            former = self._next or self._past.one(draw, scene)
            if former is not None:
                was_cut, self._next = self._next is not None, None
                self._look = f"r{self._submitted}" if was_cut or draw.integer(0, 1) else None
                return self._sent_again(former, whole=was_cut and draw.integer(0, 3) > 0)
        length = self._length()
        places = draw.choose(self._layouts) if self._layouts else []
        if places and draw.integer(0, 1):
            length = min(max_len, max(map(sum, places)) + draw.integer(0, 2))  # just behind the last item
        fork = length if draw.integer(0, 2) else draw.integer(0, length)
        fork *= self._tuning.hot_prefixes
        family = self._families[0] if draw.integer(0, 2) else draw.choose(self._families)
        prompt = family[:fork] + self._tokens(length - fork)
        name, skip = self._new_name(), draw.integer(0, 15) == 0 and self.has("Submit.skip_lookup")
        if not self._features:
            return made(ops.Submit, request=name, prompt=prompt, skip_lookup=skip, reports_hits=self._reports())
        embeds = self._embedded(prompt) if self._says("embeds") else None
        adapter, version = draw.choose(ADAPTERS) if self._says("adapter") else NO_ADAPTER
        items = () if embeds else self._items(places, length)
        return ops.Submit(
            name,
            without_rows(prompt, embeds),
            adapter=adapter,
            adapter_version=version if self.has("Submit.adapter_version") else "",
            salt=draw.choose((None, None, *SALTS)) if self._says("salt") else None,
            items=items,
            embeds=embeds,
            skip_lookup=skip,
            reports_hits=self._reports(),
        )

    def _reports(self) -> bool:
        return self.shape.events and self.has("Submit.reports_hits") and self.draw.integer(0, 1) == 0

    def _new_name(self) -> str:
        self._submitted += 1
        return f"r{self._submitted - 1}"

    def _length(self) -> int:
        """Tokens of a prompt: any number, or so many that a hit may end just before the last ones."""
        draw, max_len, sizes = self.draw, self.shape.max_model_len, [group.block_size for group in self.shape.groups]
        if draw.integer(0, 7) >= self._tuning.boundaries:
            return max_len if draw.integer(0, 15) == 0 else draw.integer(1, max_len)
        unit = self._unit
        behind = draw.choose((1, 1, sizes[-1], max(sizes) + 1))
        return min(max_len, unit * draw.integer(1, max(1, max_len // unit)) + behind)

    def _sent_again(self, former: Former, whole: bool) -> ops.Submit:
        """A request with the prompt of an earlier one, its answer, or a part of it; in what both say of themselves they
        may differ in one thing."""
        draw, was, max_len = self.draw, former.submit, self.shape.max_model_len
        same = not whole and draw.integer(0, 3) == 0
        base = was.prompt if same or (not whole and draw.integer(0, 2) == 0) else former.tokens
        length = len(base) if whole or same or draw.integer(0, 1) else min(max_len, self._length())
        prompt = base[:length] + self._tokens(length - len(base[:length]))
        if not same and draw.integer(0, 1) and length < max_len:
            prompt += self._tokens(draw.integer(1, min(max_len - length, 4)))
        length, name = len(prompt), self._new_name()
        if draw.integer(0, 7) < self._tuning.answers and length < len(former.tokens):
            self._answers[name] = former.tokens
        if not self._features:
            return made(ops.Submit, request=name, prompt=prompt)
        other = draw.choose(self._said) if draw.integer(0, 2) else ""
        rows = was.embeds and (*was.embeds[:length], *(None,) * (length - len(was.embeds)))
        items, adapter, salt = items_within(was.items, length), (was.adapter, was.adapter_version), was.salt
        if other == "items":
            items = with_another_item(draw, items, length, self.has("overlapping_items"))
        elif other == "embeds" and rows:
            rows = with_another_row(draw, rows, self._alphabet)
        elif other == "adapter" and self.has("Submit.adapter"):
            adapter = draw.choose([one for one in ADAPTERS if one != adapter])
        elif other == "salt" and self.has("Submit.salt"):
            salt = draw.choose([one for one in (None, *SALTS) if one != salt])
        return ops.Submit(
            name,
            without_rows(prompt, rows),
            adapter=adapter[0],
            adapter_version=adapter[1] if self.has("Submit.adapter_version") else "",
            salt=salt,
            items=items,
            embeds=rows,
        )

    def _sampled(self, request: Request, count: int) -> tuple[int, ...]:
        """So many tokens that come next."""
        known = len(request.tokens)
        again = self._answers.get(request.submit.request, ())[known : known + count]
        return again + self._tokens(count - len(again)) if again else self._tokens(count)

    def finish(self, scene: Scene) -> Operation | None:
        """A request ends, or is aborted."""
        return self._free(scene, self.draw.choose(list(scene.requests))) if scene.requests else None

    def _free(self, scene: Scene, name: str) -> Operation:
        self._past.ends(scene, name)
        self._answers.pop(name, None)
        return ops.Free(name)

    def _embedded(self, prompt: tuple[int, ...]) -> tuple[int | None, ...] | None:
        """Rows of embeddings in place of the prompt, or of a part of it; mostly none."""
        kind = self.draw.integer(0, 3)
        if kind != 1 or not self.has("mixed_prompts"):
            return None if kind else prompt
        bits = self.draw.integer(0, 2 ** len(prompt) - 1)
        return tuple(row if bits >> at & 1 else None for at, row in enumerate(prompt))

    def _layout(self, crowded: bool) -> list[tuple[int, int]]:
        """(offset, length) of each item. Some are direct neighbours, some overlap, some are not in order; some reach
        from one hash block into the next. Crowded ones lie mostly together in one block, from its beginning or its
        edge on."""
        draw, block = self.draw, self.shape.hash_block_size
        overlap, lengths = self.has("overlapping_items"), (1, 1, 2) if crowded else (1, 2, 6, block + 1, 2 * block)
        apart = (0, 0, 1) if crowded else (0, 0, 1, 5)
        gaps = (*apart, -2, -block - 1, -2 * block) if overlap and not crowded else apart
        start = draw.integer(0, self.shape.max_model_len - 1) // 2
        start = max(0, start // block * block + draw.choose((-1, 0, 0, 1))) if crowded else start
        places: list[tuple[int, int]] = []
        for _ in range(draw.choose((2, 2, 3) if crowded else (1, 2, 2, 3))):
            places.append((start, draw.choose(lengths)))
            length = places[-1][1]  # to its beginning: as a video and its sound
            start = max(0, start + length + draw.choose((*gaps, -length) if overlap else gaps))
        return places

    def _items(self, places: list[tuple[int, int]], length: int) -> tuple[ops.Item, ...]:
        if self.draw.integer(0, 3) == 0:
            return ()
        letters = [FIRST_ITEMS, ITEMS, ITEMS]
        return tuple(
            item_named(self.draw.choose(names), offset, size)
            for names, (offset, size) in zip(letters, places, strict=False)
            if offset + size <= length
        )
