"""What holds of every document: links that lead somewhere, lines of a readable length, reports as links."""

import re

import pytest

from .pages import (
    DOCS,
    EVERY_NAME,
    EVERY_PAGE,
    NAMES,
    PAGES,
    PART_OF_A_PAGE,
    ROOT,
    anchors,
    links,
    prose_lines,
    shown,
    without_code_and_links,
)

LINE_LENGTH = 110
"""Characters of a line of prose, the addresses of links not counted. Tables and code are as wide as they must be."""
HEADING_TABLE_OR_CODE = re.compile(r"#+ .*|\s*(?:\|.*\||`[^`]+`\W*)")
"""What cannot be broken."""
REPORT = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")


def dead_links(page, text):
    """Links of a page that lead nowhere, each with its line."""
    whole = PART_OF_A_PAGE[page].read_text(encoding="utf-8") if page in PART_OF_A_PAGE else text
    home = PART_OF_A_PAGE.get(page, page).parent
    problems = []
    for number, _, address in links(text):
        if re.match(r"[a-z]+:", address):
            continue
        path, _, anchor = address.partition("#")
        target = (home / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            problems.append(f"{number}: {address}: no such file")
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8") if path else whole):
            problems.append(f"{number}: {address}: no such heading")
    return problems


def bare_reports(text):
    """Lines in which a report is named by its number only, or a link has another number than its text."""
    problems = []
    for number, line in prose_lines(text):
        rest = without_code_and_links(line)
        bare = r"#\d{3,}|(?<![\d.,#-])(?<!<=)\d{5}(?![\d,.-])|\b(?:report|pull request|issue)s? \d|\bV\d\d\b"
        if re.search(bare, rest):
            problems.append(f"{number}: {line.strip()}")
    for number, label, address in links(text):
        report = REPORT.match(address)
        if report and label != f"{report[1]}#{report[2]}":
            problems.append(f"{number}: [{label}]({address})")
    return problems


def misshapen_links(text):
    """Links to elsewhere that can lead nowhere by their form alone, each with its line; none of them is asked."""
    outside = ((number, address) for number, _, address in links(text) if re.match(r"[a-z]+:", address))
    form = re.compile(r"https://[\w-]+(\.[\w-]+)*\.[a-z]{2,}(/[\w./%#?&=:@~+-]*)?|mailto:[\w.+-]+@[\w.-]+")
    return [f"{number}: {address}" for number, address in outside if not form.fullmatch(address)]


@pytest.mark.parametrize("page", EVERY_PAGE, ids=EVERY_NAME)
def test_every_link_leads_to_a_file_and_a_heading(page):
    text = page.read_text(encoding="utf-8")
    assert dead_links(page, text) == []
    assert misshapen_links(text) == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_lines_of_prose_are_no_longer_than_can_be_read(page):
    lines = prose_lines(page.read_text(encoding="utf-8"))
    long = [(number, line) for number, line in lines if len(shown(line)) > LINE_LENGTH]
    assert [line for line in long if not HEADING_TABLE_OR_CODE.fullmatch(line[1])] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_reports_are_links_that_say_whose_they_are(page):
    assert bare_reports(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", sorted((DOCS / "evidence").glob("*.md")), ids=lambda page: page.name)
def test_a_page_of_evidence_names_its_command(page):
    head = "\n".join(page.read_text(encoding="utf-8").splitlines()[:10])
    command = r"`[^`]*(?:blockproof|python benchmarks/|git show \w+:benchmarks/)[^`]*`"
    assert re.search(command, head), "say in its first lines what wrote it"


@pytest.mark.parametrize("shelf", sorted(path.name for path in DOCS.iterdir() if list(path.glob("*.md"))))
def test_the_index_has_every_page(shelf):
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {address.partition("#")[0] for _, _, address in links(text)}
    pages = {f"{shelf}/{page.name}" for page in (DOCS / shelf).glob("*.md")}
    assert pages <= linked


# The rules notice what they are for.


@pytest.mark.parametrize(
    "text", ["[x](nowhere.md)", "[x](README.md#nowhere)", "[x](#nowhere)", "a [`x`](fuzz/nowhere.py) b"]
)
def test_a_dead_link_is_noticed(text):
    assert len(dead_links(ROOT / "README.md", f"# A heading\n\n{text}\n")) == 1


def test_links_in_code_and_to_other_hosts_are_left_alone():
    text = "```\n[x](nowhere.md)\n```\n\n[x](https://example.org) [y](#a-heading) [z](docs)\n\n# A `heading`\n"
    assert dead_links(ROOT / "README.md", text) == []


@pytest.mark.parametrize("address", ["http://a.org/b", "https://a", "https://a.org/b>", "htps://a.org", "https:/a.org"])
def test_a_misshapen_link_is_noticed(address):
    assert misshapen_links(f"a\n[b]({address})") == [f"2: {address}"]


def test_a_link_of_the_right_form_is_not():
    assert misshapen_links("[b](https://a.org/b-c/d.html#e) [c](https://a.org) [d](docs)") == []


@pytest.mark.parametrize(
    "text",
    [
        "as in report 39734",
        "as in #39734",
        "(39734)",
        "reports 42571, 52707",
        "see V61",
        "vllm-project/vllm#39734",
        "[39734](https://github.com/vllm-project/vllm/issues/39734)",
        "[vllm-project/vllm#39735](https://github.com/vllm-project/vllm/issues/39734)",
    ],
)
def test_a_bare_report_is_noticed(text):
    assert bare_reports(text)


@pytest.mark.parametrize(
    "text",
    [
        "[vllm-project/vllm#39734](https://github.com/vllm-project/vllm/issues/39734)",
        "39,734 operations, `32768` bytes, 131072 tokens, 2026-11-21, 0.23456, vLLM V1",
    ],
)
def test_other_numbers_are_no_reports(text):
    assert bare_reports(text) == []


PATH = re.compile(r"`((?:model|impl|fuzz|proofs|tests|benchmarks|docs|examples|\.ci)/[\w./*-]*?)(?::\w+)?`")
"""A file or folder of ours, as it is named in a text."""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_files_that_a_page_names_are_there(page):
    named = PATH.findall("\n".join(line for _, line in prose_lines(page.read_text(encoding="utf-8"))))
    assert [path for path in named if not list(ROOT.glob(path.rstrip("/")))] == []
