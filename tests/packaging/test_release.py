"""The images and workflows of a release call and copy only things that exist."""

import fnmatch
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text(encoding="utf-8")
COPIES = [words.split() for words in re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.M)]
SOURCES = [source for *sources, _ in COPIES for source in sources]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("source", SOURCES)
def test_files_an_image_copies_exist_and_are_not_ignored(source: str) -> None:
    assert (ROOT / source).exists()
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert not [line for line in left_out if fnmatch.fnmatch(source, line)]


def test_an_image_copies_every_file_the_build_reads(tmp_path: Path) -> None:
    for source in SOURCES:
        path = ROOT / source
        if path.is_dir():
            shutil.copytree(path, tmp_path / source, ignore=shutil.ignore_patterns("*.so"))
        else:
            shutil.copy(path, tmp_path / source)
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1", "--no-deps"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    project, maturin = PROJECT["project"], PROJECT["tool"]["maturin"]
    read = [project["readme"], *project["license-files"], maturin["data"], maturin["python-source"]]
    missing = [name for name in [*read, ".cargo/config.toml"] if not (tmp_path / name).exists()]
    assert not missing


def test_the_images_build_with_the_maturin_of_the_project() -> None:
    (maturin,) = PROJECT["build-system"]["requires"]
    assert f'"{maturin}"' in CONTAINERFILE
    assert PROJECT["dependency-groups"]["build"] == [maturin]


def test_each_stage_is_based_on_an_earlier_one_or_a_full_image_name() -> None:
    known: set[str] = set()
    for base, name in re.findall(r"^FROM (\S+) AS (\S+)$", CONTAINERFILE, re.MULTILINE):
        assert base in known or base.startswith("docker.io/library/")
        known.add(name)
    assert {"hub", "worker"} <= known
    assert set(re.findall(r"from=(\w+)", CONTAINERFILE)) <= known


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_of_a_workflow_exist(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= TARGETS
    named = re.findall(r"(?:run: |python -I )((?:\.ci|scripts)/[\w./]+)", text)
    assert named or "make " in text
    assert not [name for name in named if not (ROOT / name).exists()]


def test_wheels_are_built_for_every_supported_python() -> None:
    served = [
        line.rpartition(" ")[2]
        for line in PROJECT["project"]["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    (tried,) = re.findall(r"^ *python: \[(.+)\]$", text, re.MULTILINE)
    assert [version.strip(' "') for version in tried.split(",")] == served
