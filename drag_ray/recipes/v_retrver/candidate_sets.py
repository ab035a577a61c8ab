"""Sets of questions with candidates of their own, as documents and questions: rows in the form of V-Retrver.

A row (https://github.com/chendy25/V-Retrver, there `verl-tool/sliding_window_processor.py`) is

    {"extra_info": {"qid": "8:12", "query_text": "...", "query_image": "a.jpg", "ground_truth_position": 3},
     "hit": [{"candidate_texts": "...", "candidate_images": "b.jpg"}, ...]}

with the best candidate first and positions from 1. Training sets have the candidates in `extra_info` instead, as lists of texts
and of images. A candidate becomes a document of one page: its picture under the name that it has, its text in a table beside it.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drag_ray.corpus.picture import MAX_BYTES, check_picture
from drag_ray.corpus.problems import Problem, count_problems, name_first
from drag_ray.corpus.records import Record, get_field, read_name, read_records, read_text
from drag_ray.errors import DataError
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import new_folder
from drag_ray.storage.file_access import writing
from drag_ray.types import CAPTION, Evidence

DOCUMENTS_NAME = "documents"
QUESTIONS_NAME = "questions.jsonl"
_QUERY_IMAGES_NAME = "query_images"
_SUFFIXES = (".png", ".jpg", ".jpeg")
_COLUMNS = ("extra_info", "hit", "qid", "query_text", "query_image", "reward_model", "data_source", "split")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate answer to a question: a text, a picture by its path, or both."""

    text: str
    image: str


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """A question with its candidates, best first; `position` is that of the right one, from 1, None where it is not there."""

    id: str
    text: str
    image: str
    candidates: tuple[Candidate, ...]
    position: int | None
    category: str
    split: str


def import_candidate_set(path: Path, folder: Path) -> dict[str, int]:
    """Write what a set holds into a new folder, whole or not at all: `documents/`, `questions.jsonl` and `problems.jsonl`.

    Args:
        path: a `.jsonl`, `.jsonl.gz` or `.parquet` file; images are read from its folder and nowhere else.
        folder: what to write.

    Returns:
        Counts: questions, candidates (distinct ones), set_aside, and of what kinds.

    Raises:
        DataError: there is no such file, no row of it can be read, or something is in the folder already.
        ArtifactError: the disk refuses.
    """
    problems: list[Problem] = []
    with new_folder(folder, ". Take it away, or name another run.") as scratch:
        documents = _Documents(path.resolve().parent, scratch)
        questions: dict[str, dict[str, Any]] = {}
        category = path.name.split(".")[0]
        for place, question in read_records(path, lambda record: documents.add(parse_row(record, category)), _COLUMNS):
            if isinstance(question, Problem):
                problems.append(question)
            elif question["id"] in questions:
                problems.append(Problem(place, f"qid {question['id']!r} comes again; the first one is kept", "duplicate"))
            else:
                questions[question["id"]] = question
        if not questions:
            raise DataError(f"{path}: not one question with candidates could be read of it.{name_first(problems)}")
        artifacts.write_jsonl(scratch / DOCUMENTS_NAME / "candidates.jsonl", documents.rows)
        artifacts.write_jsonl(scratch / QUESTIONS_NAME, list(questions.values()))
        artifacts.write_jsonl(scratch / "problems.jsonl", [asdict(problem) for problem in problems])
    return {"questions": len(questions), "candidates": documents.num_candidates, **count_problems(problems)}


def parse_row(record: Record, category: str = "") -> CandidateRow:
    """The question of a row. Raises DataError where it is none; says what was found and what is expected."""
    extra = record.get("extra_info") or {}
    if not isinstance(extra, dict):
        raise DataError(f"column 'extra_info': got {type(extra).__name__}, expected an object")
    # Those that are set: a Parquet file has all of them in every row.
    fields = {name: value for name, value in (*record.items(), *extra.items()) if value is not None}
    identity = fields.get("qid")
    if isinstance(identity, int) and not isinstance(identity, bool):
        fields["qid"] = str(identity)
    text, image = read_text(fields, "query_text").strip(), read_name(fields, "query_image").strip()
    if not text and not image:
        raise DataError("neither query_text nor query_image holds anything, expected at least one of them")
    candidates = _parse_candidates(record, extra)
    return CandidateRow(
        id=read_name(fields, "qid", required=True),
        text=text,
        image=image,
        candidates=candidates,
        position=_parse_position(record, extra, len(candidates)),
        category=read_text(fields, "category") or category,
        split=read_text(fields, "split"),
    )


def _parse_candidates(record: Record, extra: Record) -> tuple[Candidate, ...]:
    hits = record.get("hit")
    if hits:
        if not isinstance(hits, list) or not all(isinstance(hit, dict) for hit in hits):
            raise DataError(f"column 'hit': got {hits!r:.80}, expected a list of candidates")
        pairs = [(read_text(hit, "candidate_texts"), read_name(hit, "candidate_images")) for hit in hits]
    else:
        pairs = _pair_lists(extra)
    candidates = tuple(Candidate(text.strip(), image.strip()) for text, image in pairs)
    for number, candidate in enumerate(candidates, start=1):
        if candidate == Candidate("", ""):
            raise DataError(f"candidate {number} has neither a text nor an image, so that it cannot be shown. Leave it out.")
    if len(candidates) < 2:
        raise DataError(f"got {len(candidates)} candidates under 'hit', expected at least 2 to put in order")
    return candidates


def _pair_lists(extra: Record) -> list[tuple[str, str]]:
    """The candidates of a list of texts and one of images: of one list alone, or of both, equally long."""
    texts, images = (_list_names(extra, name) for name in ("candidate_texts", "candidate_images"))
    if texts and images and len(texts) != len(images):
        raise DataError(
            f"got {len(texts)} candidate_texts and {len(images)} candidate_images, so that nothing says which belong together. "
            "Write the candidates under 'hit', each with its text and its image."
        )
    return list(zip(texts or [""] * len(images), images or [""] * len(texts), strict=True))


def _list_names(extra: Record, name: str) -> list[str]:
    values = extra.get(name) or []
    if not isinstance(values, list):
        raise DataError(f"column 'extra_info.{name}': got {type(values).__name__}, expected a list of texts")
    return [read_name({name: value}, name) for value in values]


def _parse_position(record: Record, extra: Record, num_candidates: int) -> int | None:
    model = record.get("reward_model")
    found = (extra.get("ground_truth_position"), model.get("ground_truth") if isinstance(model, dict) else None)
    name, position = get_field(
        {"ground_truth_position": found[0], "ground_truth": found[1]}, ("ground_truth_position", "ground_truth")
    )
    if isinstance(position, str) and position.strip().lstrip("-").isdecimal():
        position = int(position)
    if position is None or position in (0, -1):
        return None
    if isinstance(position, bool) or not isinstance(position, int) or not 1 <= position <= num_candidates:
        raise DataError(
            f"column {name!r}: got {position!r:.80}, expected the number of one of {num_candidates} candidates, from 1"
        )
    return position


class _Documents:
    """The candidates of all rows, each once."""

    def __init__(self, source: Path, scratch: Path) -> None:
        self._source = source
        self._scratch = scratch
        self._pages: dict[Candidate, Evidence] = {}
        self._names: set[str] = set()
        self.rows: list[dict[str, Any]] = []

    @property
    def num_candidates(self) -> int:
        """Distinct ones."""
        return len(self._pages)

    def add(self, row: CandidateRow) -> dict[str, Any]:
        """The question of a row, as `corpus.questions` are read; its candidates are written. Raises DataError where an image of
        it cannot be read; then nothing of it is written."""
        images = [image for image in (row.image, *(one.image for one in row.candidates)) if image]
        found = {image: self._find(image) for image in dict.fromkeys(images)}
        pages = [self._write(candidate, found) for candidate in row.candidates]
        right = pages[row.position - 1] if row.position else self._write_absent(row.id)
        question = {
            "id": row.id,
            "question": row.text,
            "evidence": [asdict(right)],
            "candidates": [asdict(page) for page in dict.fromkeys(pages)],
            "category": row.category,
            "split": row.split,
        }
        if row.image:
            name = self._name_in(_QUERY_IMAGES_NAME, found[row.image])
            self._link(found[row.image], self._scratch / name)
            question["image"] = name
        return question

    def _find(self, image: str) -> Path:
        path = (self._source / image).resolve()
        if not path.is_relative_to(self._source) or not path.is_file():
            raise DataError(f"no file {image!r:.200} in {self._source}, beyond which nothing is read. Put the images there.")
        if path.suffix.lower() not in _SUFFIXES or any(
            part.startswith((".", "~$")) for part in path.relative_to(self._source).parts
        ):
            raise DataError(
                f"the image {image!r:.200}: expected {', '.join(_SUFFIXES)} in no hidden folder. Convert or rename it."
            )
        with path.open("rb") as stream:
            check_picture(stream.read(MAX_BYTES + 1))
        return path

    def _write(self, candidate: Candidate, found: dict[str, Path]) -> Evidence:
        if candidate in self._pages:
            return self._pages[candidate]
        if candidate.image:
            path = found[candidate.image]
            name = self._name_in("", path)
            if name in self._names:  # the same picture with another text
                name = str(Path(name).with_name(f"{path.stem}~{_hash(candidate.text)}{path.suffix}"))
            self._link(path, self._scratch / DOCUMENTS_NAME / name)
        else:
            name = f"text-{_hash(candidate.text)}"
        if candidate.text:
            self._add_row(name, candidate.text, CAPTION if candidate.image else "text")
        self._names.add(name)
        self._pages[candidate] = Evidence(name, 1)
        return self._pages[candidate]

    def _write_absent(self, identity: str) -> Evidence:
        """Add an empty page that is no candidate, so that the question counts as one that is not found."""
        name = f"absent-{_hash(identity)}"
        self._add_row(name, "", "text")
        return Evidence(name, 1)

    def _add_row(self, name: str, text: str, source: str) -> None:
        self.rows.append({"file": name, "page_number": 1, "total_pages": 1, "text": text, "text_source": source})

    def _name_in(self, folder: str, path: Path) -> str:
        return (Path(folder) / path.relative_to(self._source)).as_posix()

    def _link(self, path: Path, target: Path) -> None:
        if not target.exists():
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
            artifacts.link_file(path, target)


def _hash(text: str) -> str:
    return artifacts.compute_bytes_fingerprint(text.encode("utf-8", "surrogatepass"))
