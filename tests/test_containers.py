"""docker/: the images are built from files that exist and that reach the builder."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
DOCKERFILES = sorted(path.name for path in (PROJECT / "docker").glob("*.Dockerfile"))
SENT = [
    line.removeprefix("!")
    for line in (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    if line.startswith("!")
]


def copied(name: str) -> list[str]:
    """The files and folders that a Dockerfile copies from the repository."""
    text = (PROJECT / "docker" / name).read_text(encoding="utf-8")
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    return [file for files in copies for file in files.split() if file != "."]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_an_image_copies_exists_and_reaches_the_builder(name):
    files = copied(name)
    assert "constraints.txt" in files
    assert [file for file in files if not (PROJECT / file).exists()] == []
    assert [file for file in files if not any(fnmatch(file, pattern) for pattern in SENT)] == []


@pytest.mark.parametrize("pattern", SENT)
def test_what_is_sent_to_the_builder_exists(pattern):
    assert list(PROJECT.glob(pattern))


def test_the_images_differ_in_cuda_alone():
    def instructions(name):
        lines = (PROJECT / "docker" / name).read_text(encoding="utf-8").splitlines()
        return [line.removesuffix(" \\") for line in lines if not line.startswith("#")]

    cpu, gpu = map(instructions, DOCKERFILES)
    assert [line for line in cpu if line not in gpu] == []
    assert [line.strip() for line in gpu if line not in cpu] == [
        '"tensorflow[and-cuda]~=2.20.0"',
        "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ]
