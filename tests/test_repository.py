"""The files around the code: what must be there, one version, and nothing about the place it was made in."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import graphquilt
from extras import EXTRAS

ROOT = Path(__file__).parents[1]
if not (ROOT / ".git").exists():
    pytest.skip("these tests need a clone of the repository", allow_module_level=True)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

REQUIRED = {
    ".ci/run",
    ".editorconfig",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "docs/reliability.md",
    "pyproject.toml",
    "src/graphquilt/py.typed",
    ".github/ISSUE_TEMPLATE/bug.yml",
    ".github/ISSUE_TEMPLATE/feature.yml",
    ".github/pull_request_template.md",
    ".github/workflows/docs.yml",
    ".github/workflows/release.yml",
    ".github/workflows/test.yml",
}

# The brackets keep these patterns from matching themselves.
MACHINE_PATHS = r"(?<![\w.~-])/(?:work|root|home|Users|opt|mnt|srv)/\w"
PACKAGE_HOSTS = r"(?i)\bpyp[i]\b|pythonhoste[d]|anaconda[.]|artifactor[y]|download[.]pytorch"


def tracked_files():
    """The files that git tracks."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.split("\0") if (ROOT / name).is_file()]


def texts():
    """The tracked files that are text, with their content."""
    for path in tracked_files():
        try:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def test_required_files_are_tracked():
    tracked = {path.relative_to(ROOT).as_posix() for path in tracked_files()}
    assert not REQUIRED - tracked


def test_the_version_is_set_in_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = PROJECT["tool"]["hatch"]["version"]["path"]
    settings = [path.as_posix() for path, text in texts() if re.search(r"^(__version__|version) *= *\S", text, re.M)]
    assert settings == [source]


@pytest.mark.parametrize(("name", "pattern"), [("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## (\d\S*)")])
def test_what_repeats_the_version_agrees(name, pattern):
    assert re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M).group(1) == graphquilt.__version__


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, PACKAGE_HOSTS], ids=["machine paths", "package hosts"])
def test_nothing_of_the_place_it_was_made_in_is_named(pattern):
    places = [
        f"{path}:{number}: {match.group()}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        for match in re.finditer(pattern, line)
    ]
    assert not places


def test_every_make_command_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    assert set(re.search(r"^\.PHONY: (.*)$", makefile, re.M).group(1).split()) == targets
    for path, text in texts():
        if path.suffix in {".md", ".yml"} or path.parts[0] == ".ci":
            # A command stands between backquotes or fills a line; two spaces begin an explanation.
            commands = re.findall(r"(?:^|`|run: )make ([a-z -]+?)(?=`|$|  )", text, re.M)
            assert not set(" ".join(commands).split()) - targets, path


def test_the_classifiers_name_the_versions_that_are_tested():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    tested = re.findall(r"\"(3\.\d+)\"", workflow)
    named = re.findall(r"Python :: (3\.\d+)\b", "\n".join(PROJECT["project"]["classifiers"]))
    assert sorted(set(tested)) == sorted(named)
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_every_extra_that_a_test_may_name_exists():
    assert set(EXTRAS.values()) <= set(PROJECT["project"]["optional-dependencies"])
