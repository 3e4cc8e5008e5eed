"""The flag parser of every command, and the flags that several commands share. Imports nothing slow."""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from electra_tf.config.errors import EXIT_USER_ERROR, UserError, close_name

FLAGS_OF_DEVICES = ("strategy", "tpu", "logical_cpu_devices")  # see `add_strategy_flags`


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the description's line breaks and appends the defaults of flags, except empty ones."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        is_empty = action.default in (None, "", []) or action.const is True  # the latter: store_true
        return action.help if is_empty else super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """Refuses empty values: `--output_dir=$DIR` with an unset variable would mean the current directory."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        namespace, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            given = getattr(namespace, action.dest, None)
            if given != action.default and "" in (given if isinstance(given, list) else [given]):
                name = (action.option_strings or [action.dest])[-1]
                self.error(f"{name} is empty; give a value or remove the flag")
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        """Ends with one line, as for every mistake, where argparse prints the usage of all flags first."""
        _, _, unknown = message.partition("unrecognized arguments: ")
        flag = unknown.split("=")[0].split(" ")[0]
        match = close_name(flag, self._option_string_actions)
        see = f"did you mean {match}? See" if match else "see"
        self.exit(EXIT_USER_ERROR, f"error: {message}; {see} {self.prog} --help\n")


def flag_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser that refuses empty values and abbreviated flags (a new flag could make them ambiguous)."""
    name = os.path.basename(sys.argv[0])  # of the script, or electra-tf with its subcommand
    if name.endswith(".py"):
        module = getattr(sys.modules["__main__"], "__spec__", None)  # of `python -m`
        name = f"python -m {module.name.removesuffix('.__main__')}" if module else f"python {name}"
    return _Parser(prog=name, description=description, formatter_class=_HelpFormatter, allow_abbrev=False)


def require_flags(arguments: argparse.Namespace, *names: str) -> None:
    """Raises: UserError: one of these flags was not given."""
    if missing := [f"--{name}" for name in names if not getattr(arguments, name)]:
        raise UserError(f"missing flags: {', '.join(missing)}; see --help")


def refuse_flags(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, names: Iterable[str], mode: str
) -> None:
    """Raises: UserError: one of these flags was given, although the command ignores it with another one, `mode`."""
    for name in names:
        if getattr(arguments, name) != parser.get_default(name):
            flag = "--set" if name == "overrides" else f"--{name}"
            raise UserError(f"{flag} has no effect {mode}; remove it")


def positive_int(text: str) -> int:
    """Parses the value of a flag that takes a positive integer."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a positive integer")
    return int(text)


def add_config_flag(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Adds --config, for `electra_tf.config.loader.read_values`."""
    parser.add_argument(
        "--config",
        required=required,
        metavar="NAME",
        help="a preset (small, base, ablations/generator_half ...) or your own YAML file; see docs/configs.md",
    )


def add_set_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --set. Its values become the list `overrides`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="A.B=VALUE",
        help="change one setting; repeatable",
    )


def add_objective_module_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --objective_module, for `electra_tf.cli.configuration.load_module`."""
    parser.add_argument(
        "--objective_module",
        metavar="MODULE",
        help="Python module that registers your own objective; see docs/objectives.md",
    )


def add_segment_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --segment, for `electra_tf.text.segment.program_to_run`."""
    parser.add_argument(
        "--segment",
        metavar="COMMAND",
        help="run the program that cut the vocabulary's text into words, see docs/vocabulary.md; none: the text is cut",
    )


def add_strategy_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --strategy, --tpu and --logical_cpu_devices, for `electra_tf.api.process.started_strategy`."""
    parser.add_argument(
        "--strategy",
        default="one_device",
        choices=["one_device", "mirrored", "multi_worker_mirrored", "tpu"],
        help="tf.distribute strategy; multi_worker_mirrored reads TF_CONFIG",
    )
    parser.add_argument(
        "--tpu", default="local", metavar="NAME", help="TPU: local (on a TPU VM), its name, or grpc://HOST:PORT"
    )
    parser.add_argument(
        "--logical_cpu_devices", type=positive_int, default=1, metavar="N", help="split the CPU into N logical devices"
    )
