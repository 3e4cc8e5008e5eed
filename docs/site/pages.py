"""The site's pages from outside docs/, and links as GitHub resolves them: relative to the file, also out of docs/."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

PROJECT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")  # not to another site, not within the page


def on_files(files, config):
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(PROJECT / name)))
    return files


def on_page_markdown(markdown, page, config, files):
    pages = {Path(file.abs_src_path): file.src_uri for file in files if file.abs_src_path}
    folder = Path(page.file.abs_src_path).parent

    def link(match):
        target, anchor = (folder / match[1]).resolve(), match[2] or ""
        known = pages.get(target) or pages.get(target / "README.md")
        if known:
            return f"]({posixpath.relpath(known, posixpath.dirname(page.file.src_uri))}{anchor})"
        if target.exists():  # else it stays as it is, and the strict build names it
            kind = "tree" if target.is_dir() else "blob"
            return f"]({config.repo_url}/{kind}/HEAD/{target.relative_to(PROJECT).as_posix()}{anchor})"
        return match[0]

    return _LINK.sub(link, markdown)


def on_post_page(output, **_):
    """Without this attribute the theme's script does not ask GitHub for the repository's stars."""
    return output.replace(' data-md-component="source"', "")


on_post_template = on_post_page  # of 404.html
