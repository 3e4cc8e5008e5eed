"""All pages: each command of the project has the flags it is given, and runs in a test."""

import argparse
import re
import shlex
from collections.abc import Sequence
from unittest import mock

import pytest

from electra_tf.cli import flags
from electra_tf.cli.commands import SUBCOMMANDS
from tests.docs.commands import PROJECT, blocks_of, command, commands_in

ALL = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]
PAGES = [page for page in ALL if page.parent.name != "notes"]
# Commands in blocks that no test runs: (page, how they begin, what they need).
NOT_RUN: list[tuple[str, str, str]] = [
    ("data", "electra-tf build-data --input='wikipedia:dumps/*.bz2' --vocab_file=vocab.txt", "a cluster of Flink"),
    ("data", "electra-tf build-data --input='wikipedia:gs://", "Google Dataflow"),
    ("scaling", "electra-tf pretrain --config=base --set train.precision=bfloat16 --data_dir=gs://", "a TPU"),
]
RUN = {
    name
    for path in (PROJECT / "tests/docs").glob("test_*.py")
    for name in re.findall(r'run_page\("(\w+)"', path.read_text(encoding="utf-8"))
}


def blocks(page) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks, and of the indented ones, whose language is empty."""
    text = page.read_text(encoding="utf-8")
    fenced = r"^```(\w*)\n(.*?)^```$"
    rest = re.sub(fenced, "", text, flags=re.DOTALL | re.MULTILINE)
    indented = [("", block) for block in re.findall(r"(?:^    .*\n)+", rest, re.MULTILINE)]
    return re.findall(fenced, text, re.DOTALL | re.MULTILINE) + indented


def ours(page) -> list[tuple[str, str]]:
    """(language, command) of each `electra-tf NAME ...` in a block."""
    found = [(language, line) for language, text in blocks(page) for line in commands_in(text)]
    return [(language, line) for language, line in found if line.startswith("electra-tf ")]


def parser_of(name: str, arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    class Asked(Exception):
        """Ends a command when it has made its parser."""

    def end(parser, *_):
        raise Asked(parser)

    with mock.patch.object(flags._Parser, "parse_known_args", end), pytest.raises(Asked) as asked:
        command(name)(list(arguments))  # on which it may depend, as with --verify
    return asked.value.args[0]


@pytest.fixture(scope="module")
def parsers() -> dict[str, argparse.ArgumentParser]:
    return {name: parser_of(name) for name in SUBCOMMANDS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_in_a_block_is_complete(page):
    for _, line in ours(page):
        _, name, *arguments = shlex.split(line.partition(" --runner=")[0])  # the rest is for Beam
        if name in SUBCOMMANDS:  # not --help, --version
            parser_of(name, arguments).parse_args(arguments)  # its error ends the test with the line that users see


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_every_flag_named_in_a_sentence_exists(page, parsers):
    text = page.read_text(encoding="utf-8")
    for name, arguments in re.findall(r"`electra-tf\s+([a-z-]+)([^`]*)`", text):
        named = set(re.findall(r"(?<!\S)--[a-z_]+", arguments))
        assert not named or named <= parsers[name]._option_string_actions.keys(), f"electra-tf {name}{arguments}"


def test_every_command_that_reads_a_model_takes_the_module_of_an_objective(parsers):
    flags = {name: parser._option_string_actions.keys() for name, parser in parsers.items()}
    reading = {name for name, each in flags.items() if each & {"--from", "--init_from", "--model_dir"}}
    assert len(reading) > 5
    assert [name for name in reading if "--objective_module" not in flags[name]] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_runs_in_a_test(page):
    left_out = tuple(start for name, start, _ in NOT_RUN if name == page.stem)
    lines = [line for language, line in ours(page) if language != "sh"]
    assert [line for line in lines if not line.startswith(left_out)] == []
    assert not blocks_of(page) or page.stem in RUN
