"""Optimise the base model's instructions, as a baseline for training.

On this machine:    python jobs/prompt.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/prompt.py --run-dir /shared/run
All options:        python jobs/prompt.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("prompt", sys.argv[1:]))
