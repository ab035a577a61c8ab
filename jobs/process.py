"""Score the searches of the trajectories and print the statistics.

On this machine:    python jobs/process.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/process.py --run-dir /shared/run
All options:        python jobs/process.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("process", sys.argv[1:]))
