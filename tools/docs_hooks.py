"""MkDocs hooks: links in the pages are those of the repository, so that they work there too. One that leaves docs/, such as
../experiments/ID/README.md, brings that file into the site; a file that does not exist is an error."""

import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def in_repository(uri):
    """The path in the repository of a page of the site."""
    return posixpath.join("docs", uri) if (ROOT / "docs" / uri).is_file() else uri


def targets(path, text):
    """The files that a page of the repository links to, as paths in the repository."""
    for _, target, _ in LINK.findall(FENCE.sub("", text)):
        if "://" not in target and not target.startswith("mailto:"):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def in_site(path):
    """The path in the site of a file of the repository."""
    return path.removeprefix("docs/")


def on_files(files, config):
    """Adds what the pages link to outside of docs/."""
    waiting = [in_repository(file.src_uri) for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.endswith(".md"):
            continue
        for target in targets(path, (ROOT / path).read_text()):
            if target in seen or target.startswith("docs/"):
                continue
            if target.startswith("..") or not (ROOT / target).is_file():
                raise PluginError(f"{path}: links to {target}, which does not exist")
            seen.add(target)
            waiting.append(target)
            file = File(target, str(ROOT), config["site_dir"], config["use_directory_urls"])
            file.inclusion = type(file.inclusion).NOT_IN_NAV
            files.append(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links between files of the repository into links between pages of the site."""
    here = page.file.src_uri
    path = in_repository(here)

    def moved(match):
        before, target, after = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return before + posixpath.relpath(in_site(target), posixpath.dirname(here) or ".") + after

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)
