"""Charts of a page: numbers that cannot be drawn are refused; what is drawn can be read without seeing it."""

from math import inf, nan

import pytest
from blockproof.fuzz.page import html
from blockproof.fuzz.reports.charts import MOST_POINTS, Chart, ChartError, Series, check, series
from blockproof.fuzz.reports.document import VERSION, FoundCard, ReportDocument

from .test_browser import AXE, NASTY


def with_charts(*charts):
    return ReportDocument(VERSION, "charts", "a run", "nothing was found", "good", [], charts=list(charts))


def chart(*lines, **options):
    return Chart("Hits", "pool, blocks", "found, %", list(lines), **options)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (Series("a", [0, 1], [1]), "2 places, and 1 values for them"),
        (Series("a", [0, 1], [1, nan]), "is not finite"),
        (Series("a", [0, 1], [1, 2e15]), "too large"),
        (Series("a", [0, 1e-300], [1, 2]), "too small"),
        (Series("a", [0, inf], [1, 2]), "is not finite"),
        (Series("a", [0, 0], [1, 2]), "do not increase"),
    ],
)
def test_a_line_that_cannot_be_drawn_is_refused(line, why):
    check([chart(Series("a", [0, 1], [1, 2]))])
    with pytest.raises(ChartError, match=why):
        html.page(with_charts(chart(line)))


def test_two_lines_of_one_name_are_refused():
    with pytest.raises(ChartError, match="two lines have one name"):
        check([chart(series("a", [(0, 1)]), series("a", [(1, 2)]))])


def test_a_line_is_thinned_and_keeps_its_ends():
    line = series("a", [(x // 2, x) for x in range(10_000)])
    assert len(line.xs) == MOST_POINTS
    assert (line.xs[0], line.ys[0], line.xs[-1], line.ys[-1]) == (0, 1, 4_999, 9_999)
    with pytest.raises(ChartError):
        series("a", [(1, 0), (0, 0)])


def test_a_page_without_charts_does_not_have_their_script():
    assert "chart-0" not in (without := html.page(with_charts()))
    assert "chart.log_x" not in without
    assert "chart.log_x" in html.page(with_charts(chart(series("a", []))))


@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (420, "light")])
def test_charts_are_read_by_keyboard_and_as_a_table(opened, width, scheme):
    curve = [series("ours", [(1, 2), (10, 30), (100, 40)]), series(NASTY, [(1, 0), (100, 38.5)])]
    counted = chart(*curve, steps=True, log_y=True)
    view = opened(
        with_charts(chart(*curve, log_x=True), counted, chart(series("a", []))),
        color_scheme=scheme,
        viewport={"width": width, "height": 800},
    )
    figures = view.page.locator("figure")
    assert "Nothing was recorded" in figures.nth(2).inner_text()
    assert view.page.locator("svg[role=img]").count() == 2
    point = view.page.get_by_label("Hits: point to read").first
    point.focus()
    view.press("Home", "ArrowRight")
    assert point.get_attribute("aria-valuetext").startswith("pool, blocks 10: ours 30, <img")
    assert figures.first.locator("li b").all_inner_texts() == ["30", "–"]
    view.page.get_by_label("Hits: point to read").nth(1).focus()
    view.press("Home", "ArrowRight")
    assert figures.nth(1).locator("li b").all_inner_texts() == ["30", "0"]
    figures.first.locator("summary").click()
    figures.first.locator("tbody tr").first.wait_for()
    rows = figures.first.locator("tbody tr").all_inner_texts()
    assert [row.split() for row in rows] == [["1", "2", "0"], ["10", "30", "–"], ["100", "40", "38.5"]]
    styles = "[...document.querySelectorAll('figure:first-child .plot .line')].map((one) => [one.getAttribute('d')"
    lines = view.page.evaluate(f"{styles}.split(/[MLHV]/).length - 1, one.getAttribute('stroke-dasharray')])")
    assert lines == [[3, ""], [2, "7 4"]]
    assert view.page.locator("img").count() == 0
    view.page.evaluate(f"() => {{ {AXE} }}")
    assert view.page.evaluate("async () => (await axe.run()).violations.map((one) => one.id)") == []
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_of_many_findings_a_dozen_is_shown_at_first(opened):
    cards = [FoundCard(f"finding {number}", "text") for number in range(14)]
    view = opened(ReportDocument(VERSION, "many", "", "", "note", [], cards))
    assert view.page.locator("article.card").count() == 12
    view.click(view.page.get_by_role("button", name="all 14 findings"))
    assert view.page.locator("article.card").count() == 14
    assert view.page.get_by_role("button", name="all 14 findings").count() == 0


FAR = [[1e15 - 0.25, 1e15], [-1e15, 1e15], [1e-12, 2e-12], [0, 1e-12], [1e-12, 1e15], [-5.0, -5.0]]


def test_numbers_at_the_end_of_what_there_is_do_no_harm(opened):
    """Close together, far apart: the page is there, with some marks on each axis."""
    lines = [(Series("a", [0, 1], values), log) for values in FAR for log in (False, True)]
    view = opened(with_charts(*(chart(line, log_y=log, steps=log) for line, log in lines)))
    assert view.page.locator("figure").count() == len(lines)
    assert view.page.locator(".grid text").count() < 20 * len(lines)
    assert view.page.locator("figure li b").all_inner_texts()[-1] == "-5"
