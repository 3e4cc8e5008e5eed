"""The site that mkdocs.yml describes: its pages, its links, its pictures, and that it loads nothing from elsewhere."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import electra_tf

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
REPOSITORY = "https://github.com/electra-tf/electra_tf"
LOADING = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>")


def test_every_page_is_in_the_navigation():
    named = re.findall(r"^ +- [^:]+: (\S+\.md)$", (PROJECT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(named) == sorted(pages | {"index.md", "contributing.md", "changelog.md", "security.md"})


def test_the_reference_and_the_stub_have_every_public_name():
    named = re.findall(r"^::: electra_tf\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    stub = (PROJECT / "electra_tf/__init__.pyi").read_text(encoding="utf-8")
    assert sorted(named) == electra_tf.__all__ == sorted(re.findall(r" as (\w+)$", stub, re.MULTILINE))


def test_the_page_of_settings_is_made_from_the_schema_and_describes_each_of_them():
    page = runpy.run_path(str(DOCS / "site" / "settings.py"))["page"]
    made = page()
    assert page() == made
    assert made == (DOCS / "settings.md").read_text(encoding="utf-8"), (
        "run: python -m docs.site.settings > docs/settings.md"
    )
    rows = re.findall(r"^\| `([a-z_.0-9]+)` \| [^|]+ \| [^|]*\| (.*) \|$", made, re.MULTILINE)
    assert len(rows) > 100 and [name for name, description in rows if not description] == []


def test_the_committed_pictures_are_what_the_script_draws():
    drawn = runpy.run_path(str(DOCS / "pictures" / "draw.py"))["PICTURES"]
    committed = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "pictures").glob("*.svg")}
    assert {name: draw() for name, draw in drawn.items()} == committed, "run: python docs/pictures/draw.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[str, str]:
    """The built pages, by their paths."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={directory}"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    answer = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr[-4000:]
    pages = directory.rglob("*.html")
    return {path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8") for path in pages}


@pytest.mark.slow
def test_the_readme_is_the_home_page_and_its_links_lead_to_pages_or_to_the_repository(site):
    links = re.findall(r'<a href="([^"]+)"', re.search(r"<article.*</article>", site["index.html"], re.DOTALL)[0])
    assert {"tutorial/", "contributing/", "notes/", f"{REPOSITORY}/blob/HEAD/sample/README.md"} <= set(links)
    assert [link for link in links if link.endswith(".md") and not link.startswith(REPOSITORY)] == []


@pytest.mark.slow
def test_the_reference_shows_types_and_descriptions(site):
    text = re.sub(r"<[^>]+>", "", site["api/index.html"])
    assert re.search(r"layers\s*\(int \| None, default:\s*None\s*\)\s*–\s*keep the encoder's first layers", text)


@pytest.mark.slow
def test_a_browser_loads_nothing_from_another_host(site):
    assert [found for text in site.values() for found in LOADING.findall(text)] == []
    # The theme's script asks GitHub about the repository where it finds this attribute.
    assert [name for name, text in site.items() if 'data-md-component="source"' in text] == []
