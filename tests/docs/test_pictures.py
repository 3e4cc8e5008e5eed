"""docs/pictures/draw.py: the committed pictures are those that it draws."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
DRAWN = runpy.run_path(str(FOLDER / "draw.py"))


def texts(svg: str) -> list[str]:
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_every_picture_of_the_folder_is_drawn():
    assert sorted(DRAWN["PICTURES"]) == sorted(path.name for path in FOLDER.glob("*.svg"))


@pytest.mark.parametrize("name", DRAWN["PICTURES"])
def test_a_committed_picture_is_what_the_script_draws(name):
    drawn = DRAWN["PICTURES"][name]()
    assert drawn == (FOLDER / name).read_text(encoding="utf-8"), "run: python docs/pictures/draw.py"


def test_a_sample_equal_to_the_original_is_an_original():
    shown = texts(DRAWN["training_step"]())
    assert shown[12:17] == ["the", "chef", "ate", "the", "meal"]
    assert shown[18:23] == ["original", "original", "replaced", "original", "original"]
