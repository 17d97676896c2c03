"""Settings of Sphinx, which builds the site from the pages as they lie in the repository: a link works in both.

The sidebar has the groups of pages that ``README.md`` beside this file lists. With ``-W`` a page that is in none of
them is an error, as is a link or an anchor that leads nowhere.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from posixpath import normpath
from typing import Any

DOCS = Path(__file__).parent
PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]

project, version = PROJECT["name"], PROJECT["version"]
html_title = f"{project} {version}"
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "example_suites/**.md", "benchmarks/**.md"]
exclude_patterns = [".*", "build", "dist"]

extensions = ["myst_parser"]
myst_heading_anchors = 6  # named as GitHub names them
smartquotes = False
highlight_language = "none"  # of blocks that name none

html_theme = "furo"
html_copy_source = html_show_copyright = False
html_use_index = False
html_static_path = html_css_files = ["site.css"]
pygments_style, pygments_dark_style = "default", "github-dark"


def navigation() -> str:
    """Return toctrees: the index of all pages, then one for each of its groups, without the page that shows them."""
    index = (DOCS / "README.md").read_text("utf-8")
    toctrees = ["```{toctree}\n:hidden:\n\ndocs/README\n```\n"]
    for caption, group in re.findall(r"^### (.+?)\n(.*?)(?=^#|\Z)", index, re.MULTILINE | re.DOTALL):
        links = re.findall(r"^\| \[[^]]*\]\(([^)]+)\.md\)", group, re.MULTILINE)
        pages = [page for link in links if (page := normpath(f"docs/{link}")) != root_doc]
        toctrees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"]))
    return "\n".join(toctrees)


def _add_navigation(_app: Any, docname: str, source: list[str]) -> None:
    if docname == root_doc:
        source[0] += f"\n\n{navigation()}"


def _make_front_page(app: Any, exception: Exception | None) -> None:
    """Write the front page under the name that web servers open, too."""
    if exception is None:
        shutil.copyfile(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Any) -> None:
    """Register what settings cannot say."""
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _make_front_page)
