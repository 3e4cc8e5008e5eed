"""Speed compared with peers, and parity with the authors' code: `python -m benchmarks.NAME`."""
