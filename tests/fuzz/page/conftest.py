"""Pages of documents in the Chromium of the tests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.page.html import write_page


@dataclass
class Opened:
    """A page in the browser, and what it complained about or asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def step(self) -> int:
        """The step that is shown."""
        return int(self.page.get_by_label("Step", exact=True).input_value())

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.drawn()

    def click(self, place: Any, **where: Any) -> None:
        place.click(**where)
        self.drawn()

    def drawn(self) -> None:
        """Wait until what was done last is drawn: before, the browser gives no text of a table that has just come."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the page of a document; at the end nothing may have been asked for, and nothing complained about."""
    pages: list[Opened] = []

    def open_it(document: Any, place: str = "", **options: Any) -> Opened:
        path = tmp_path / f"page-{len(pages)}.html"
        write_page(document, path)
        page = chromium.new_page(**{"viewport": {"width": 1400, "height": 900}, **options})
        one = Opened(page)
        pages.append(one)
        page.on("console", lambda said: one.complaints.append(said.text))
        page.on("pageerror", lambda error: one.complaints.append(str(error)))
        page.on("request", lambda asked: one.requests.append(asked.url))
        page.goto(path.as_uri() + place)
        page.wait_for_selector("h1")
        one.drawn()
        return one

    yield open_it
    for one in pages:
        assert one.complaints == []
        assert [url for url in one.requests if not url.startswith("file:")] == []
        assert len(one.requests) == 1
        one.page.close()
