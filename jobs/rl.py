"""Train the policy by reinforcement learning while it collects.

On this machine:    python jobs/rl.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/rl.py --run-dir /shared/run
All options:        python jobs/rl.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("rl", sys.argv[1:]))
