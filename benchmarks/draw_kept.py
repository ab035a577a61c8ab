"""Draws questions that are kept apart: on them no choice is made, and nothing but a final recipe is evaluated.

python benchmarks/draw_kept.py SET FOLDER [--data-dir ../shared/data]

Of a public set a fifth of the documents of its train part are drawn. Their questions become FOLDER/SET.jsonl's test split, the
other questions of the train part its train split; those of the dev part, which were in view while the project was made, are left
out. The file is what `--corpus.questions` takes, and `bench_kept.py` compares what was trained on the one and asked of the other.
"""

import argparse
import hashlib
import json
import random
from pathlib import Path

from public_sets import DATA_DIR, require
from record import make_folder

SEED = "kept apart"
SHARE = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", help="a page set, for example medquad")
    parser.add_argument("folder", type=make_folder, help="where its questions are written")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    given = parser.parse_args()
    lines = (require(given.data_dir / given.set) / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["split"] == "train"]
    files = sorted({row["file"] for row in rows})
    kept = set(random.Random(SEED + given.set).sample(files, round(SHARE * len(files))))
    for row in rows:
        row["split"] = "test" if row["file"] in kept else "train"
    path = given.folder / f"{given.set}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asked = sorted(row["id"] for row in rows if row["split"] == "test")
    digest = hashlib.sha256("\n".join(asked).encode()).hexdigest()[:16]
    print(f"{path}: {len(asked)} questions of {len(kept)} documents are kept apart (sha256 of their ids {digest})")


if __name__ == "__main__":
    main()
