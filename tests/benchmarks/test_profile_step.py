import pytest

from benchmarks import profile_step, train_step_ours
from benchmarks.profile_step import Event, self_times, table
from electra_tf.config.loader import config_to_yaml

MILLISECOND = 10**9  # in picoseconds


def event(name: str, start: int, duration: int, kind: str = "Mul") -> Event:
    return Event(name, kind, start * MILLISECOND, duration * MILLISECOND)


def self_milliseconds(*events: Event) -> dict[str, int]:
    return {found.name: self_time // MILLISECOND for found, self_time in self_times(events)}


def test_the_time_of_a_nested_operation_is_not_that_of_the_one_around_it():
    outer, inner, innermost, after = event("a", 0, 10), event("b", 2, 5), event("c", 3, 1), event("d", 10, 4)
    assert self_milliseconds(innermost, after, outer, inner) == {"a": 5, "b": 4, "c": 1, "d": 4}


def test_of_an_operation_that_outlives_the_one_around_it_only_the_overlap_is_taken_off():
    assert self_milliseconds(event("a", 0, 10), event("b", 7, 9)) == {"a": 7, "b": 9}


def test_the_table_sums_by_type_over_threads_and_divides_by_steps():
    threads = [
        [event("x/mul", 0, 6), event("y/product", 6, 3, "MatMul")],
        [event("z/mul", 0, 4), event("call", 4, 50, "PartitionedCall")],
    ]
    header, first, second, total = table(threads, num_steps=2, by="type", top=5).splitlines()
    assert header.endswith("operation type")
    assert first.split() == ["5.0", "76.9%", "76.9%", "1.0", "Mul"]
    assert second.split() == ["1.5", "23.1%", "100.0%", "0.5", "MatMul"]
    assert total.split() == ["6.5", "100.0%", "1.5", "all"]


def test_the_table_by_pattern_takes_the_layers_of_a_network_together():
    threads = [[event("layer_0/mul_7", 0, 2), event("layer_11/mul_12", 2, 3)]]
    rows = table(threads, num_steps=1, by="pattern", top=5).splitlines()[1:-1]
    assert [row.split() for row in rows] == [["5.0", "100.0%", "100.0%", "2.0", "layer_N/mul_N:Mul"]]


def test_the_table_keeps_the_rows_that_take_the_most():
    threads = [[event("a", 0, 1), event("b", 1, 9), event("c", 10, 5)]]
    rows = table(threads, num_steps=1, by="name", top=2).splitlines()[1:-1]
    assert [row.split()[-1] for row in rows] == ["b:Mul", "c:Mul"]


@pytest.mark.parametrize("xla", [False, True])
def test_the_products_of_a_real_step_are_found(tmp_path, tiny_config, monkeypatch, capsys, xla):
    monkeypatch.setattr(train_step_ours, "limit_threads", lambda *_: None)  # too late in a process that has begun
    path = tmp_path / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config(train={"xla": xla})), encoding="utf-8")
    assert profile_step.main([f"--config={path}", "--batch_size=3", "--steps=2", "--top=500"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "batch 3, length 10" in lines[0] and "s/step" in lines[0]
    kinds = [line.split(maxsplit=4)[-1] for line in lines[2:-1]]
    assert any(kind.startswith("XLA dot") if xla else kind.endswith("MatMul") for kind in kinds)


def test_no_steps_are_refused():
    with pytest.raises(SystemExit) as refused:
        profile_step.parse_flags(["--steps=0"])
    assert refused.value.code == 2
