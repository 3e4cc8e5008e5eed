"""The modules import each other only as docs/architecture.md allows; the imports are read from the sources."""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]

# A room imports only from rooms of a lower rank.
RANKS = {
    "electra_tf": 0,
    "electra_tf.config.errors": -2,  # a room of its own, because every room may raise them
    "electra_tf.checkout": -3,
    "electra_tf.files": -1,
    "electra_tf.tensorflow_files": -2,
    "electra_tf.config": 0,
    "electra_tf.ops": 1,
    "electra_tf.text": 1,
    "electra_tf.models": 2,
    "electra_tf.data": 2,
    "electra_tf.flops": 2,
    "electra_tf.tasks": 3,
    "electra_tf.train": 4,
    "electra_tf.tasks.finetune": 6,
    "electra_tf.weights": 7,
    "electra_tf.export": 8,
    "electra_tf.reports": 8,
    "electra_tf.tasks.finetune.predict": 8,  # the runs of fine-tuning, from one stored model to others
    "electra_tf.tasks.finetune.seeds": 8,
    "electra_tf.tasks.finetune.run": 9,
    "electra_tf.tasks.finetune.milestones": 10,
    "electra_tf.api": 11,
    "electra_tf.cli": 12,
    "electra_tf.__main__": 13,
}
# What each package may import of the project.
ALLOWED = {
    "electra_tf": ("electra_tf",),
    "data_prep": (
        "data_prep",
        "electra_tf.text",
        "electra_tf.data.manifest",
        "electra_tf.data.records",
        "electra_tf.config",
        "electra_tf.files",
        "electra_tf.checkout",
        "electra_tf.cli.flags",
        "electra_tf.cli.process",
    ),
    "benchmarks": ("benchmarks", "electra_tf", "data_prep"),
    "experiments": ("experiments", "electra_tf", "data_prep"),
}


@functools.cache
def imported_modules(path: Path, at_start: bool = False) -> set[str]:
    """Every module that a source file imports, also in its functions. (ruff forbids relative imports.)

    For `from a import b` both `a` and `a.b` count, because `b` may be a module. Imports under `if TYPE_CHECKING` do
    not count. Args: at_start: only what the import of the file itself imports.
    """
    modules, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_start else _executed_nodes(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return modules


def _executed_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _executed_nodes(node)


@functools.cache
def imports_of(*packages: str) -> dict[str, set[str]]:
    """The modules of these packages, each with the modules of these packages that it imports."""
    sources = {}
    for path in (path for package in packages for path in (PROJECT / package).rglob("*.py")):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: imported_modules(path) & sources.keys() for name, path in sources.items()}


def room_of(module: str) -> str:
    """The longest name in `RANKS` that contains a module: `electra_tf.models` for `electra_tf.models.heads`."""
    while module not in RANKS and "." in module:
        module = module.rpartition(".")[0]
    return module


def test_imports_in_functions_count_and_imports_for_type_checking_do_not(tmp_path):
    (tmp_path / "a.py").write_text("import b.c\ndef f():\n    from d import e\nif TYPE_CHECKING:\n    import g\n")
    assert imported_modules(tmp_path / "a.py") == {"b.c", "d", "d.e"}


def test_every_folder_of_the_package_has_a_rank():
    folders = {f"electra_tf.{path.parent.name}" for path in (PROJECT / "electra_tf").glob("*/__init__.py")}
    assert folders <= RANKS.keys() == {room_of(module) for module in imports_of("electra_tf")}


@pytest.mark.parametrize("room", sorted(RANKS))
def test_a_room_imports_only_from_rooms_below_it(room):
    upward = {
        f"{module} imports {other}"
        for module, others in imports_of("electra_tf").items()
        for other in others
        if room_of(module) == room != room_of(other) != "electra_tf" and RANKS[room_of(other)] >= RANKS[room]
    }
    assert upward == set()


def test_no_modules_import_each_other_in_a_circle():
    waiting = {
        # A package's __init__ runs before its modules, so a module's import of its own package is no circle.
        module: {other for other in others if not module.startswith(f"{other}.") and other != module}
        for module, others in imports_of(*ALLOWED).items()
    }
    while free := {module for module, others in waiting.items() if not others & waiting.keys()}:
        waiting = {module: others for module, others in waiting.items() if module not in free}
    assert waiting == {}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_it_may(package):
    allowed = ALLOWED[package]
    forbidden = {
        f"{module} imports {other}"
        for module, others in imports_of(*ALLOWED).items()
        for other in others
        if module.partition(".")[0] == package
        # `from a.b import c` imports the packages above `a.b.c` too.
        and not other.startswith(allowed)
        and not any(name.startswith(f"{other}.") for name in allowed)
    }
    assert forbidden == set()


def test_pre_training_starts_without_fine_tuning_and_without_a_tokenizer():
    """They take half a second to import, and only a warm start needs them."""
    waiting, loaded = (
        ["electra_tf.weights.warm_start", "electra_tf.train.loop", "electra_tf.tasks.pretrain.stages"],
        set(),
    )
    while waiting:
        name = waiting.pop()
        path = PROJECT / name.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name not in loaded and path.exists():
            loaded.add(name)
            waiting += imported_modules(path, at_start=True)
    tokenizers = {
        f"electra_tf.text.{name}" for name in ("kinds", "tokenizer", "wordpiece", "sentencepiece", "byte_level")
    }
    assert "electra_tf.train.step" in loaded
    assert loaded & {"electra_tf.tasks.finetune.kinds", "electra_tf.tasks.finetune.data", *tokenizers} == set()


def test_the_examples_import_only_packages_that_a_user_of_an_export_has():
    # Except the example of an objective, which is a part of a training.
    paths = [path for path in (PROJECT / "examples").rglob("*.py") if path.name != "random_token_detection.py"]
    siblings = {path.stem for path in paths}
    roots = {name.partition(".")[0] for path in paths for name in imported_modules(path)}
    needed = {"tensorflow", "tensorflow_text", "tensorflow_serving", "grpc", "google", "numpy", "tokenizers"}
    assert roots - set(sys.stdlib_module_names) - siblings == needed
