"""The site: every page stands in its sidebar, and the check of a built one sees what it is for."""

import pytest

from .site import program

site_map = program("site_map")
check_site = program("check_site")

INDEX = """\
# Documents

## Guide, for users

| page | what |
| --- | --- |
| [First](guide/first.md) | `x` |

## Evidence, generated

| page | what |
| --- | --- |
| [Findings](evidence/findings.md#some) | and [again](evidence/findings.md) |
"""
CLEAN = {
    "index.html": '<link rel="stylesheet" href="a.css"><h1 id="top">x</h1><a href="b/c.html#here">x</a>'
    '<a href="#top">x</a><a href="https://example.org/gone">x</a><img src="data:image/png;base64,AA==">'
    '<script src="a.js?v=1"></script>',
    "b/c.html": '<p id="here">x</p><a href="../index.html">x</a><style>p { background: url("../a.css") }</style>',
    "a.css": "p { background: url(data:image/png;base64,AA==) }",
    "a.js": "",
}


def written(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def tree(folder, more=()):
    pages = {"README.md": "# x", "docs/README.md": INDEX, "docs/guide/first.md": "# First"}
    pages["docs/evidence/findings.md"] = "# Findings\n\n[one](findings/one/report.md), [two](../guide/first.md)\n"
    pages["docs/evidence/findings/one/report.md"] = "# One"
    return written(folder, {**pages, **dict(more)})


# Which pages there are, and where they stand.


def test_every_page_stands_in_the_sidebar():
    assert site_map.unreached() == []
    assert {"CHANGELOG.md", "docs/reference/theorems/windows.md", "docs/api/targets.md"} <= set(site_map.pages())


def test_sphinx_finds_the_same_pages():
    found = pytest.importorskip("sphinx.util.matching").get_matching_files
    left_out = [".*", "**/.*", "build", *site_map.LEFT_OUT]
    assert sorted(found(site_map.ROOT, site_map.PATTERNS, left_out)) == site_map.pages()


def test_the_sidebar_is_what_the_index_lists(tmp_path):
    assert site_map.unreached(tree(tmp_path)) == []
    text = site_map.toctrees("README.md", "# x", INDEX)
    entries = [line for line in text.splitlines() if line.startswith((":caption:", "First", "Find", "All"))]
    assert entries == [
        "All documents </docs/README>",
        ":caption: Guide",
        "First </docs/guide/first>",
        ":caption: Evidence",
        "Findings </docs/evidence/findings>",
    ]


def test_an_index_of_a_folder_has_its_pages_below_it(tmp_path):
    text = (tree(tmp_path) / "docs/evidence/findings.md").read_text(encoding="utf-8")
    assert site_map.below("docs/evidence/findings.md", text) == [("one", "docs/evidence/findings/one/report.md")]
    assert site_map.toctrees("docs/guide/first.md", "[one](second.md)", INDEX) == ""


def test_a_page_on_a_shelf_stands_nowhere_else():
    index = INDEX.replace("[First]", "[Guide](guide/README.md) | x |\n| [First]")
    assert site_map.toctrees("docs/guide/README.md", "[one](first.md)", index) == ""
    assert "/docs/guide/lost" in site_map.toctrees("docs/guide/README.md", "[one](first.md), [two](lost.md)", index)


@pytest.mark.parametrize("page", ["docs/guide/lost.md", "docs/lost.md", "docs/evidence/findings/two/report.md"])
def test_a_page_that_nothing_leads_to_is_noticed(tmp_path, page):
    assert site_map.unreached(tree(tmp_path, {page: "# Lost"})) == [page]


def test_a_link_in_code_leads_nowhere(tmp_path):
    index = f"{INDEX}\n```\n[Lost](guide/lost.md)\n```\n"
    assert site_map.unreached(tree(tmp_path, {"docs/guide/lost.md": "# Lost", "docs/README.md": index}))


# What a built site must be.


def test_a_clean_site_passes(tmp_path, monkeypatch, capsys):
    written(tmp_path, CLEAN)
    assert list(check_site.problems(tmp_path)) == []
    monkeypatch.setattr("sys.argv", ["check_site.py", str(tmp_path)])
    assert check_site.main() == 0
    assert "2 pages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<a href="gone.html">x</a>', "gone.html: no such file"),
        ('<a href="../../outside.html">x</a>', "../../outside.html: no such file"),
        ('<a href="b/c.html#gone">x</a>', "b/c.html#gone: no such place"),
        ('<a href="#gone">x</a>', "#gone: no such place"),
        ('<img src="gone.svg">', "gone.svg: no such file"),
        ('<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js: loaded from outside"),
        ('<link href="//fonts.example/x.css">', "//fonts.example/x.css: loaded from outside"),
        ("<style>@import 'https://fonts.example/x.css'</style>", "https://fonts.example/x.css: loaded from outside"),
        ('<p style="background: url(http://a.example/x.png)">', "http://a.example/x.png: loaded from outside"),
    ],
)
def test_what_is_wrong_with_a_page_is_noticed(tmp_path, monkeypatch, capsys, text, problem):
    written(tmp_path, {**CLEAN, "d.html": text})
    assert list(check_site.problems(tmp_path)) == [f"d.html: {problem}"]
    monkeypatch.setattr("sys.argv", ["check_site.py", str(tmp_path)])
    assert check_site.main() == 1
    assert problem in capsys.readouterr().out


def test_what_a_style_sheet_loads_is_looked_at(tmp_path):
    written(tmp_path, {**CLEAN, "e.css": "@font-face { src: url(https://fonts.example/x.woff2) }"})
    assert list(check_site.problems(tmp_path)) == ["e.css: https://fonts.example/x.woff2: loaded from outside"]


def test_a_folder_without_a_site_is_wrong_use(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check_site.py", str(tmp_path)])
    assert check_site.main() == 2
    assert "make site" in capsys.readouterr().err
