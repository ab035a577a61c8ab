"""Tell how the trial of an endpoint stands; with --promote or --rollback change who answers, which is recorded.

On this machine:    python jobs/trial.py --run-dir runs/mine [--promote [--force] | --rollback]
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/trial.py --run-dir /shared/run
All options:        python jobs/trial.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("trial", sys.argv[1:]))
