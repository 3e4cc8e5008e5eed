"""Which module may import which, read from the source of every module. docs/architecture.md has the table."""

import ast
import functools
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]

# A room imports only from rooms of a lower rank.
RANKS = {
    "electra_tf": 0,
    "electra_tf.config.errors": -2,  # a room of its own, because every room may raise them
    "electra_tf.files": -1,
    "electra_tf.config": 0,
    "electra_tf.ops": 1,
    "electra_tf.text": 1,
    "electra_tf.models": 2,
    "electra_tf.data": 2,
    "electra_tf.flops": 2,
    "electra_tf.tasks": 3,
    "electra_tf.train": 4,
    "electra_tf.runs": 5,
    "electra_tf.tasks.finetune": 6,
    "electra_tf.weights": 7,
    "electra_tf.export": 8,
    "electra_tf.reports": 8,
    "electra_tf.cli": 9,
}
BUILDER_MAY_IMPORT = (
    "electra_tf.text",
    "electra_tf.config",
    "electra_tf.files",
    "electra_tf.cli.flags",
    "electra_tf.cli.process",
)


def _module_name(path: Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room_of(module: str) -> str:
    """`electra_tf.models.heads` -> `electra_tf.models`; `data_prep.readers.books` -> `data_prep`."""
    if module in RANKS:
        return module
    if module.startswith("electra_tf.tasks.finetune."):  # a room within another one
        return "electra_tf.tasks.finetune"
    return ".".join(module.split(".")[: 2 if module.startswith("electra_tf.") else 1])


@functools.cache
def imported_modules(path: Path) -> set[str]:
    """Every module that a source file imports, also in its functions. (ruff forbids relative imports.)

    For `from a import b` both `a` and `a.b` are given, because `b` may be a module. Imports under `if TYPE_CHECKING` do
    not count.
    """
    modules = set()
    for node in _executed_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return modules


def _executed_nodes(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _executed_nodes(node)


def _sources(*roots: str) -> dict[str, Path]:
    return {_module_name(path): path for root in roots for path in sorted((PROJECT / root).rglob("*.py"))}


@functools.cache
def _imports(*roots: str) -> dict[str, set[str]]:
    """The modules of these roots, each with those of them that it imports."""
    sources = _sources(*roots)
    return {name: imported_modules(path) & sources.keys() for name, path in sources.items()}


def test_imports_in_functions_count_and_imports_for_type_checking_do_not(tmp_path):
    (tmp_path / "a.py").write_text("import b.c\ndef f():\n    from d import e\nif TYPE_CHECKING:\n    import g\n")
    assert imported_modules(tmp_path / "a.py") == {"b.c", "d", "d.e"}


def test_every_room_has_a_rank():
    assert {_room_of(module) for module in _sources("electra_tf")} == set(RANKS)


@pytest.mark.parametrize("room", sorted(RANKS))
def test_a_room_imports_only_from_rooms_below_it(room):
    upward = {
        f"{module} imports {other}"
        for module, others in _imports("electra_tf").items()
        for other in others
        if _room_of(module) == room != _room_of(other) != "electra_tf" and RANKS[_room_of(other)] >= RANKS[room]
    }
    assert upward == set()


def test_no_modules_import_each_other_in_a_circle():
    waiting = {
        # A package's __init__ runs before its modules, so a module's import of its own package is no circle.
        module: {other for other in others if not module.startswith(f"{other}.") and other != module}
        for module, others in _imports("electra_tf", "data_prep", "benchmarks", "experiments").items()
    }
    while free := {module for module, others in waiting.items() if not others & waiting.keys()}:
        waiting = {module: others for module, others in waiting.items() if module not in free}
    assert set(waiting) == set()


def test_the_dataset_builder_imports_only_its_rooms():
    modules = {other for others in _imports("electra_tf", "data_prep").items() for other in _of_builder(*others)}
    assert {other for other in modules if not other.startswith(BUILDER_MAY_IMPORT)} <= {"electra_tf", "electra_tf.cli"}


def _of_builder(module: str, others: set[str]) -> set[str]:
    return {other for other in others if module.startswith("data_prep") and not other.startswith("data_prep")}


@pytest.mark.parametrize(
    "root, forbidden",
    [
        ("electra_tf", ("data_prep", "benchmarks", "experiments")),
        ("data_prep", ("benchmarks", "experiments")),
        ("benchmarks", ("experiments",)),
        ("experiments", ("benchmarks",)),
    ],
)
def test_packages_do_not_import_the_builder_the_benchmarks_and_the_experiments(root, forbidden):
    importers = [
        f"{module} imports {name}"
        for module, path in _sources(root).items()
        for name in imported_modules(path)
        if name.partition(".")[0] in forbidden
    ]
    assert importers == []


def test_the_examples_import_only_packages_that_a_user_of_an_export_has():
    paths = _sources("examples").values()
    siblings = {path.stem for path in paths}
    roots = {name.partition(".")[0] for path in paths for name in imported_modules(path)}
    needed = {"tensorflow", "tensorflow_text", "tensorflow_serving", "grpc", "google", "numpy"}
    assert roots - set(sys.stdlib_module_names) - siblings == needed
