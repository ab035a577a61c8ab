"""Run all stages in order; skip what is unchanged, go on with what was interrupted.

On this machine:    python jobs/pipeline.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/pipeline.py --run-dir /shared/run
All options:        python jobs/pipeline.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("pipeline", sys.argv[1:]))
