"""The program `chita`, or `python -m chita`: what must happen before torch is imported.

OpenMP reads its environment when torch loads it, and the import takes seconds, in which Ctrl-C must
not print a traceback. `chita` imports nothing until a name of it is used.
"""

from __future__ import annotations

import os

try:
    import signal  # which imports some modules of Python, for a few milliseconds
except KeyboardInterrupt:
    raise SystemExit(130) from None

# Threads that wait for others sleep. By default they spin, which costs many times the CPU time if
# other processes, or the quota of a container, keep the threads that they wait for from running.
# GNU's library may spin for about 0.02 ms first, which is faster on an idle machine; ten times as
# much doubles the CPU time beside one busy process.
POLICY = "OMP_WAIT_POLICY"
WAITING = {POLICY: "PASSIVE", "GOMP_SPINCOUNT": "2000"}


def main() -> None:
    """Run the command line; variables that the user sets take precedence."""
    if POLICY not in os.environ:
        for name, value in WAITING.items():
            os.environ.setdefault(name, value)
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # a process in the background may ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from chita.cli.app import main as run

    signal.signal(signal.SIGINT, handler)
    run()


if __name__ == "__main__":
    main()
