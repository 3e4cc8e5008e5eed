"""Signals: the first ends the run at its next step; a second one, or one with nothing to save, ends the process."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from electra_tf.train.signals import Interrupted, Interruption

# A small program in place of a run: waits in one call, as in a loop on the device, until its end is requested.
_PROGRAM = """
import logging, signal, sys, threading
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
from electra_tf.train.signals import Interrupted, Interruption
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
stop = threading.Event()
with Interruption() as interruption:
    if sys.argv[1] != "starts":
        with interruption.deferred(stop.set, has_progress=lambda: sys.argv[1] != "compiles"):
            print("ready", flush=True)
            stop.wait(60)
            print("saved", flush=True)
            if sys.argv[1] == "hangs":
                threading.Event().wait(60)
            sys.exit(interruption.interrupted().exit_code)
    print("ready", flush=True)
    threading.Event().wait(60)
"""


FIRST = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
AT_NEXT_STEP, AT_ONCE = "ending at the next step, with a checkpoint", "ended at once, as there is nothing new to save"


@pytest.mark.parametrize(
    ("mode", "signals", "status", "output", "message"),
    [
        *(("trains", [each], 128 + each, "saved\n", f"{each.name}: {AT_NEXT_STEP}") for each in FIRST),
        ("compiles", [signal.SIGXCPU], 152, "", f"SIGXCPU: {AT_ONCE}"),
        ("hangs", [signal.SIGXCPU] * 3 + [signal.SIGTERM], 143, "saved\n", "SIGTERM: a second signal; ended at once"),
        ("trains", [signal.SIGINT] * 2, 130, "saved\n", f"SIGINT: {AT_NEXT_STEP}"),
        ("hangs", [signal.SIGTERM, signal.SIGINT], 130, "saved\n", "SIGINT: a second signal; ended at once"),
        ("starts", [signal.SIGTERM], 143, "", f"SIGTERM: {AT_ONCE}"),
    ],
)
def test_signal_ends_a_process(mode, signals, status, output, message):
    command = [sys.executable, "-c", _PROGRAM, mode]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        for sent in signals:
            process.send_signal(sent)
            time.sleep(0.3)
        printed, messages = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, printed) == (status, output)
    assert messages.splitlines()[-1].startswith(message)


def test_handlers_are_restored_at_the_end_and_nohup_stays():
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Interruption():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    signal.signal(signal.SIGHUP, hangup)


def test_in_a_users_program_ctrl_c_ends_a_training_or_else_raises():
    before, stopped = signal.getsignal(signal.SIGTERM), threading.Event()
    with Interruption(of_process=False) as interruption:
        assert signal.getsignal(signal.SIGTERM) is before
        with interruption.deferred(stopped.set, has_progress=lambda: False):
            signal.raise_signal(signal.SIGINT)
            assert stopped.wait(10)
            signal.raise_signal(signal.SIGINT)  # a second one changes nothing
        assert interruption.interrupted().exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_exit_code_is_that_of_the_signal_or_of_sigterm_if_another_worker_received_it():
    assert (str(Interrupted(signal.SIGINT)), Interrupted(signal.SIGINT).exit_code) == ("ended by SIGINT", 130)
    assert Interruption().interrupted().exit_code == 143
