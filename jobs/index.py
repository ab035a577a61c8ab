"""Read documents and questions and build the search index.

On this machine:    python jobs/index.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/index.py --run-dir /shared/run
All options:        python jobs/index.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("index", sys.argv[1:]))
