"""Choose how pages are searched, by training questions, before anything is trained.

On this machine:    python jobs/tune.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/tune.py --run-dir /shared/run
All options:        python jobs/tune.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("tune", sys.argv[1:]))
