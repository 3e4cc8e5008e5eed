"""Who may import whom: the layering of the project, read from the source of every module."""

import ast
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]

_BELOW_DATA = {"electra_tf.text", "electra_tf.config", "electra_tf.ops.random"}
_BELOW_OBJECTIVES = {"electra_tf.models", "electra_tf.data"} | _BELOW_DATA
_BELOW_TRAIN = {"electra_tf.tasks.pretrain"} | _BELOW_OBJECTIVES

# What each package may import of the project, besides itself. A package that is missing here fails a test.
ALLOWED_IMPORTS = {
    "electra_tf": set(),
    "electra_tf.config": set(),
    "electra_tf.ops.random": set(),
    "electra_tf.text": {"electra_tf.config"},
    "electra_tf.data": _BELOW_DATA,
    "electra_tf.models": _BELOW_DATA,
    "electra_tf.tasks.pretrain": _BELOW_OBJECTIVES,
    "electra_tf.train": _BELOW_TRAIN,
    "electra_tf.finetune": _BELOW_TRAIN,
    "electra_tf.flops": {"electra_tf.train"} | _BELOW_TRAIN,
    "electra_tf.export": _BELOW_TRAIN,
    "electra_tf.reports": {"electra_tf.train", "electra_tf.config"},
    "data_prep": {"electra_tf.text", "electra_tf.config"},
    "examples": set(),  # a user's program: it has no project to import
}


def _module_name(path: Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package_of(module: str) -> str:
    """`electra_tf.models.heads` -> `electra_tf.models`; `data_prep.readers.books` -> `data_prep`."""
    depth = 2 if module.startswith("electra_tf.") else 1
    return ".".join(module.split(".")[:depth])


def imported_modules(source: str, module: str, is_package: bool) -> set[str]:
    """Every module that a source text imports, at any depth of it, relative ones resolved.

    For `from a import b` both `a` and `a.b` are given, because `b` may be a module.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = module.split(".") if is_package else module.split(".")[:-1]
                anchor = anchor[: len(anchor) - (node.level - 1)]
                base = ".".join([*anchor, base] if base else anchor)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def _sources() -> list[Path]:
    paths = [path for root in ("electra_tf", "data_prep", "examples") for path in (PROJECT / root).rglob("*.py")]
    return sorted(paths)


def _imports_of(path: Path) -> set[str]:
    return imported_modules(path.read_text(encoding="utf-8"), _module_name(path), path.name == "__init__.py")


def _project_packages(modules: set[str]) -> set[str]:
    """The packages of this project among `modules`; `from electra_tf import train` names `electra_tf.train`."""
    packages = {_package_of(name) for name in modules}
    return {name for name in packages if name in ALLOWED_IMPORTS and name != "electra_tf"}


def test_imports_are_found_in_functions_and_relative_ones_are_resolved():
    source = "import a.b\nfrom . import c\nfrom ..d import e\ndef f():\n    from g import h\n"
    found = imported_modules(source, "p.q.r", is_package=False)
    assert found == {"a.b", "p.q", "p.q.c", "p.d", "p.d.e", "g", "g.h"}


def test_a_package_is_its_own_anchor_for_relative_imports():
    assert imported_modules("from .m import n", "p.q", is_package=True) == {"p.q.m", "p.q.m.n"}


def test_every_package_has_its_place_in_the_layering():
    packages = {_package_of(_module_name(path.parent / "__init__.py")) for path in _sources()}
    assert packages <= set(ALLOWED_IMPORTS)


@pytest.mark.parametrize("package", sorted(ALLOWED_IMPORTS))
def test_a_package_imports_only_what_lies_below_it(package):
    violations = []
    for path in _sources():
        if _package_of(_module_name(path.parent / "__init__.py")) == package:
            forbidden = _project_packages(_imports_of(path)) - ALLOWED_IMPORTS[package] - {package}
            violations += [f"{path.relative_to(PROJECT)} imports {name}" for name in sorted(forbidden)]
    assert violations == []


@pytest.mark.parametrize("library", ["argparse", "yaml"])
def test_only_the_config_package_reads_flags_and_yaml(library):
    readers = {_module_name(path) for path in _sources() if library in _imports_of(path)}
    package_readers = {name for name in readers if not name.startswith(("electra_tf.config", "examples"))}
    assert package_readers == set()


def test_the_example_imports_nothing_but_tensorflow_and_the_standard_library():
    outside = {"tensorflow", "tensorflow_text"}
    roots = {name.split(".")[0] for path in (PROJECT / "examples").glob("*.py") for name in _imports_of(path)}
    assert roots - set(sys.stdlib_module_names) == outside
