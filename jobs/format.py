"""Write training rows from the scored searches.

On this machine:    python jobs/format.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/format.py --run-dir /shared/run
All options:        python jobs/format.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("format", sys.argv[1:]))
