"""Serve the base model and its adapters behind one OpenAI-compatible endpoint.

On this machine:    python jobs/serve.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/serve.py --run-dir /shared/run
All options:        python jobs/serve.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("serve", sys.argv[1:]))
