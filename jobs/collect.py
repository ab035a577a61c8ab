"""Roll out the training questions and keep the trajectories.

On this machine:    python jobs/collect.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/collect.py --run-dir /shared/run
All options:        python jobs/collect.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("collect", sys.argv[1:]))
