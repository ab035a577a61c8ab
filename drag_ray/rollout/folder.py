"""The names in the folder of a run of rollouts.

trajectories/    finished rollouts; the name of each file ends with the hash of its bytes
failures/        a row for each try of a rollout that failed, in files of the same kind
problems.jsonl   files that were set aside, and every rollout that ever failed with what became of it
corrupt/         files whose bytes are no longer those that were written; their rollouts run again
begun/           a file for each chunk that was begun in this attempt, with the names of the engines that did, a line each
running/         one empty file for each rollout that is being run; one that stays behind ran when its engine died
.attempt         the attempt that goes on, by which a node knows whether it sees this folder
reset_failures   an empty file that says that the next attempt forgets all failures
images/          what tools showed, and pictures that were made worse, by the hash of its bytes (see `corpus.image_store`)
logs/            what the engines print
spending.jsonl   the tokens of each reply of an endpoint
"""

TRAJECTORIES_DIR_NAME = "trajectories"
FAILURES_DIR_NAME = "failures"
PROBLEMS_NAME = "problems.jsonl"
CORRUPT_DIR_NAME = "corrupt"
BEGUN_DIR_NAME = "begun"
RUNNING_DIR_NAME = "running"
ATTEMPT_NAME = ".attempt"
RESET_NAME = "reset_failures"
LOGS_DIR_NAME = "logs"
IMAGES_DIR_NAME = "images"

OWN_FILES = (CORRUPT_DIR_NAME, BEGUN_DIR_NAME, RUNNING_DIR_NAME, RESET_NAME, LOGS_DIR_NAME)
"""What nobody reads but the run itself."""
