"""Turn what people said about the pages that an endpoint has shown them into questions with evidence.

On this machine:    python jobs/learn.py --run-dir runs/mine
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/learn.py --run-dir /shared/run
All options:        python jobs/learn.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("learn", sys.argv[1:]))
