"""Compare the base model, the adapter and the baselines on held-out questions.

On this machine:    python jobs/evaluate.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/evaluate.py --run-dir /shared/run
All options:        python jobs/evaluate.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("evaluate", sys.argv[1:]))
