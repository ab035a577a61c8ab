"""Embed the pages of an index again, with a model that was trained or another one.

On this machine:    python jobs/embed.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/embed.py --run-dir /shared/run
All options:        python jobs/embed.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("embed", sys.argv[1:]))
