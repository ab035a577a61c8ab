"""Have a model write questions, with answers and evidence, from the pages of an index.

On this machine:    python jobs/questions.py --run-dir runs/mine --questions.limit 500
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/questions.py --run-dir /shared/run
All options:        python jobs/questions.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("questions", sys.argv[1:]))
