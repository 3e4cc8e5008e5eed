"""Where the time of a training step goes, operation by operation.

    python -m benchmarks.profile_step --config=configs/pretrain/small.yaml --batch_size=32
    python -m benchmarks.profile_step --batch_size=32 --set train.precision=bfloat16 --by=pattern --top=40

Runs the real training step on synthetic batches (random tokens, real masks) under TensorFlow's profiler and reads the
trace itself. The self time of an operation is what its thread spent in it and in nothing nested in it; on several
inter-op threads operations run side by side, so self times add up to more than the step. With train.xla a row is a
fusion of XLA's, from its start to its end, by the name that XLA gave it. Prints a table, and the seconds of a step
without the profiler.
"""

import argparse
import collections
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from electra_tf.cli.flags import add_set_flag, flag_parser, run_command

_SMALL = Path(__file__).resolve().parents[1] / "configs" / "pretrain" / "small.yaml"
_WARM_UP_STEPS = 2
_PICOSECONDS = 1e-12
# What TensorFlow names an operation's event: its name in the graph, a colon, its type.
_OPERATION = re.compile(r"^(?P<name>[A-Za-z0-9_.][\w./>-]*):(?P<type>_?[A-Za-z]\w*)$")
# Types that only call other operations; while those run on other threads they wait.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf"})


@dataclass(frozen=True)
class Event:
    """An operation on a thread.

    Attributes:
        name: in the graph.        kind: its type, or XLA's name of it without the number.
        start, duration: picoseconds.
    """

    name: str
    kind: str
    start: int
    duration: int

    @property
    def end(self) -> int:
        return self.start + self.duration


# What operations a row takes together. A pattern is a name whose numbers do not count, so that layers are one.
ROWS: dict[str, Callable[[Event], str]] = {
    "type": lambda event: event.kind,
    "pattern": lambda event: re.sub(r"\d+", "N", f"{event.name}:{event.kind}"),
    "name": lambda event: f"{event.name}:{event.kind}",
}


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("--config", default=_SMALL, metavar="FILE", help="YAML file of the run to profile")
    add_set_flag(parser)
    parser.add_argument("--batch_size", type=int, default=32, help="examples of a step")
    parser.add_argument("--steps", type=int, default=3, help="under the profiler, and as many without")
    parser.add_argument("--threads", type=int, default=2, help="of one operation")
    parser.add_argument("--inter_op_threads", type=int, help="operations at a time; with 1 they add up to the step")
    parser.add_argument("--by", choices=list(ROWS), default="type", help="what a row stands for")
    parser.add_argument("--top", type=int, default=25, help="rows")
    flags = parser.parse_args(arguments)
    for name in ("batch_size", "steps", "threads", "top"):
        if getattr(flags, name) <= 0:
            parser.error(f"--{name} must be positive")
    return flags


def profile(flags: argparse.Namespace) -> None:
    """Runs the steps and prints the table."""
    from benchmarks.train_step_ours import OurStep, limit_threads

    limit_threads(flags.threads, flags.inter_op_threads)
    step = OurStep.of_file(flags.config, [*flags.overrides, f"train.batch_size={flags.batch_size}"])
    for _ in range(_WARM_UP_STEPS):
        step.run()
    unprofiled = step.seconds_per_step(flags.steps)
    threads, profiled = _trace(step, flags.steps)
    config = step.config
    print(
        f"{Path(flags.config).name}, {' '.join(flags.overrides) or 'no overrides'}: batch {flags.batch_size}, length "
        f"{config.data.max_seq_length}, {flags.threads} threads; {unprofiled:.3f} s/step, {profiled:.3f} profiled"
    )
    print(table(threads, flags.steps, flags.by, flags.top))


def table(threads: Iterable[list[Event]], num_steps: int, by: str, top: int) -> str:
    """The operations that take the most self time, a line each.

    Args:
        threads: each thread's operations.        num_steps: that they are of.        by: of `ROWS`.
    """
    seconds: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for events in threads:
        for event, self_time in self_times(events):
            if event.kind in _CALLS:
                continue
            row = ROWS[by](event)
            seconds[row] += self_time * _PICOSECONDS
            counts[row] += 1
    total = sum(seconds.values())
    lines = [f"{'ms/step':>10}  {'share':>6}  {'up to':>6}  {'a step':>7}  operation {by}"]
    running = 0.0
    for row, value in seconds.most_common(top):
        running += value
        lines.append(
            f"{value / num_steps * 1e3:10.1f}  {value / total:6.1%}  {running / total:6.1%}  "
            f"{counts[row] / num_steps:7.1f}  {row}"
        )
    lines.append(f"{total / num_steps * 1e3:10.1f}  {1:6.1%}  {'':6}  {counts.total() / num_steps:7.1f}  all")
    return "\n".join(lines)


def self_times(events: Iterable[Event]) -> list[tuple[Event, int]]:
    """Each event of one thread, with what of its duration no event nested in it has. In picoseconds."""
    found: list[tuple[Event, int]] = []
    open_events: list[int] = []
    for event in sorted(events, key=lambda event: (event.start, -event.duration)):
        while open_events and found[open_events[-1]][0].end <= event.start:
            open_events.pop()
        if open_events:
            parent, self_time = found[open_events[-1]]
            # An event that outlives its parent cannot be nested in it; only their overlap is taken off.
            found[open_events[-1]] = parent, self_time - (min(parent.end, event.end) - event.start)
        open_events.append(len(found))
        found.append((event, event.duration))
    return found


def _trace(step, num_steps: int) -> tuple[list[list[Event]], float]:
    """The operations of so many steps, by thread, and seconds of a step meanwhile."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory(prefix="profile_step_") as directory:
        with tf.profiler.experimental.Profile(directory):
            seconds = step.seconds_per_step(num_steps)
        (path,) = Path(directory).glob("**/*.xplane.pb")
        return read_events(path), seconds


def read_events(path: Path) -> list[list[Event]]:
    """The operations of each thread of the host, from a file that TensorFlow's profiler has written.

    XLA's operations may begin on one thread and end on another; they make up a thread of their own each, which is right
    as long as they follow each other.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    operations = _operations_of_instructions(space)
    threads = []
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        threads += [_tensorflow_events(plane, line) for line in plane.lines]
        threads += [[event] for event in _xla_events(plane, operations)]
    return [events for events in threads if events]


def _tensorflow_events(plane, line) -> list[Event]:
    matches = ((event, _OPERATION.match(plane.event_metadata[event.metadata_id].name)) for event in line.events)
    return [
        Event(match["name"], match["type"], _start(line, event), event.duration_ps) for event, match in matches if match
    ]


def _xla_events(plane, operations: dict[str, str]) -> list[Event]:
    """XLA's operations: one event at the start, and for those that run asynchronously one more when all is done.

    The profiler joins the two by the identity of a producer and its consumer.

    Args:
        operations: what TensorFlow called the operation that an instruction of XLA's was made for.
    """
    names = {key: metadata.name for key, metadata in plane.stat_metadata.items()}
    ends: dict[tuple[str, int], int] = {}
    begun: list[tuple[str, tuple[str, int], int, int]] = []
    for line in plane.lines:
        for event in line.events:
            stats = {names[stat.metadata_id]: stat.int64_value or stat.uint64_value for stat in event.stats}
            name, start = plane.event_metadata[event.metadata_id].name, _start(line, event)
            if name.startswith("end: "):
                ends[name.removeprefix("end: "), stats.get("_c", 0)] = start
            elif "hlo_op" in stats:
                begun.append((name, (name, stats.get("_p", 0)), start, event.duration_ps))
    events = []
    for name, key, start, duration in begun:
        operation = operations.get(name, "")
        kind = f"XLA {re.sub(r'[.0-9].*$', '', name)} {operation.rpartition('/')[2]}".rstrip()
        events.append(Event(operation or name, kind, start, max(duration, ends.get(key, start) - start)))
    return events


def _operations_of_instructions(space) -> dict[str, str]:
    """XLA's name of each instruction of the compiled programs -> TensorFlow's of the operation it was made for."""
    from tensorflow.compiler.xla.service import hlo_pb2

    found: dict[str, str] = {}
    for plane in space.planes:
        for metadata in plane.event_metadata.values() if plane.name == "/host:metadata" else ():
            for stat in metadata.stats:
                module = hlo_pb2.HloProto.FromString(stat.bytes_value).hlo_module
                roots = {
                    computation.id: next(
                        (part for part in computation.instructions if part.id == computation.root_id), None
                    )
                    for computation in module.computations
                }
                for computation in module.computations:
                    for instruction in computation.instructions:
                        found[instruction.name] = _operation_of(instruction, roots)
    return found


def _operation_of(instruction, roots: dict) -> str:
    """The operation an instruction was made for; what calls a computation is named after the result of that."""
    while not instruction.metadata.op_name and instruction.called_computation_ids:
        called = roots.get(instruction.called_computation_ids[0])
        if called is None:
            break
        instruction = called
    return instruction.metadata.op_name


def _start(line, event) -> int:
    return line.timestamp_ns * 1000 + event.offset_ps


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: profile(flags))


if __name__ == "__main__":
    sys.exit(main())
