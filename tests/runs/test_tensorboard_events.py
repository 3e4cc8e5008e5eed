"""Event files without a step twice."""

import tensorflow as tf

from electra_tf.runs.tensorboard_events import EventWriter, drop_events_after


def events(directory) -> list[tuple[int, dict[str, float]]]:
    found = []
    for path in sorted(directory.glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            if event.HasField("summary"):
                found.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
    return found


def write(directory, **losses: float) -> None:
    writer = EventWriter(directory)
    for name, loss in losses.items():
        writer.write(int(name.removeprefix("step_")), {"loss": loss})
    writer.close()


def test_each_report_is_an_event_on_disk_at_once(tmp_path):
    writer = EventWriter(tmp_path)
    writer.write(3, {"loss": 0.5, "accuracy": 0.25})
    assert events(tmp_path) == [(3, {"loss": 0.5, "accuracy": 0.25})]


def test_the_events_of_later_steps_are_dropped_from_every_file(tmp_path):
    write(tmp_path, step_2=1.0, step_4=2.0)
    write(tmp_path, step_6=3.0, step_8=4.0)
    drop_events_after(tmp_path, 3)
    assert events(tmp_path) == [(2, {"loss": 1.0})]
    write(tmp_path, step_4=5.0)
    assert events(tmp_path) == [(2, {"loss": 1.0}), (4, {"loss": 5.0})]


def test_a_torn_event_is_dropped(tmp_path):
    write(tmp_path, step_2=1.0, step_4=2.0)
    (path,) = tmp_path.glob("events*")
    path.write_bytes(path.read_bytes()[:-5])
    drop_events_after(tmp_path, 9)
    assert events(tmp_path) == [(2, {"loss": 1.0})]


def test_a_file_of_earlier_steps_is_left_alone(tmp_path):
    write(tmp_path, step_2=1.0)
    (path,) = tmp_path.glob("events*")
    before = path.stat().st_ino
    drop_events_after(tmp_path, 2)
    assert path.stat().st_ino == before


def test_tensorboard_reads_the_files(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write(tmp_path, step_2=1.0, step_4=0.5)
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert [(event.step, event.value) for event in accumulator.Scalars("loss")] == [(2, 1.0), (4, 0.5)]


def test_a_worker_that_writes_nothing_leaves_no_file(tmp_path):
    EventWriter(None).write(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []
