"""Train a LoRA adapter on the training rows.

On this machine:    python jobs/finetune.py --config jobs/configs/demo.toml
On a cluster:       ray job submit --address http://HEAD:8265 --working-dir . -- python jobs/finetune.py --run-dir /shared/run
All options:        python jobs/finetune.py --help
"""

import sys

from drag_ray.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command("finetune", sys.argv[1:]))
