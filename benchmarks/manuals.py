"""Reference manuals of installed packages as PDFs with a page an entry, and questions: the set `manuals` of the results.

Nobody wrote this text for a benchmark. A page is an entry without the first sentence of its docstring; the question is that
sentence, the evidence every page whose entry is summarised by it.

The packages repeat themselves: the four polars frames, pandas' Series and DataFrame, numpy's polynomial families. Knowing one
such page is knowing the others, so near-duplicates are put into one group, on one side of a split.

python benchmarks/manuals.py runs/manuals_corpus [--packages numpy pandas ...]
"""

import argparse
import importlib
import inspect
import pkgutil
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy import sparse

from drag_ray.corpus.split import compute_components
from drag_ray.errors import ConfigError
from drag_ray.examples.commands import MAX_EVIDENCE_PAGES, QUESTIONS_NAME, Entry, gather_chapters, take_chapters, write_chapters
from drag_ray.storage import artifacts

# The modules that each package's reference documents. Naming them keeps the corpus the same whatever
# else the process has imported; a package that is not named here gives all its public modules one level deep.
_MODULES = {
    "numpy": (
        "char ctypeslib dtypes exceptions fft lib lib.array_utils lib.format lib.introspect lib.mixins lib.npyio"
        " lib.recfunctions lib.scimath lib.stride_tricks linalg ma ma.extras ma.mrecords polynomial polynomial.chebyshev"
        " polynomial.hermite polynomial.hermite_e polynomial.laguerre polynomial.legendre polynomial.polynomial"
        " polynomial.polyutils random rec strings typing"
    ),
    "pandas": (
        "api.extensions api.indexers api.types api.typing arrays errors io.formats.style io.json io.stata plotting"
        " tseries.api tseries.frequencies tseries.holiday tseries.offsets"
    ),
    "polars": "api catalog.unity config datatypes exceptions io io.cloud io.plugins meta plugins schema selectors sql",
    "pyarrow": "acero compute csv dataset feather flight fs ipc json orc parquet parquet.encryption substrait types",
    "torch": (
        "amp autograd autograd.forward_ad autograd.functional autograd.graph autograd.profiler compiler cuda cuda.memory"
        " distributed distributed.checkpoint distributed.device_mesh distributed.fsdp distributed.optim distributed.pipelining"
        " distributed.rpc distributed.tensor distributed.tensor.parallel distributions distributions.constraints"
        " distributions.kl distributions.transforms export fft func futures fx hub jit library linalg masked multiprocessing"
        " nested nn nn.attention nn.attention.flex_attention nn.functional nn.init nn.parallel nn.utils"
        " nn.utils.parametrizations nn.utils.parametrize nn.utils.prune nn.utils.rnn nn.utils.stateless onnx optim"
        " optim.lr_scheduler optim.swa_utils overrides package profiler random serialization signal.windows sparse special"
        " utils.benchmark utils.checkpoint utils.cpp_extension utils.data utils.data.distributed utils.dlpack"
    ),
}
_SKIPPED_PARTS = {"tests", "testing", "test", "conftest", "core", "compat", "vendored", "distutils", "f2py", "deprecated"}
_MAX_SIGNATURE_CHARS = 400
# "e.g. NumPy" does not end a sentence; "1.0" and "np.dot" have no space after the point.
_SENTENCE_END = re.compile(
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)(?<!\bapprox)[.?!](?=[)\"'`]*(?:\s+[^a-z\s]|\s*$))"
)
# A directive, or a heading with its underline, where the summary should be.
_NOT_A_SUMMARY = re.compile(r"\A\s*\.\. |^\s*([-=~])\1{2,}\s*$", re.MULTILINE)
_ROLE = re.compile(r":(?:py:)?[a-z]+:`[~!]?\.?([^`]*)`")
# Some defaults print their address, which differs from one process to the next.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class ManualEntry(Entry):
    """One documented object. `namespace` is the module or class that holds it, `sentence` its summary, `body` the rest."""

    package: str
    sentence: str


def read_entries(package: str) -> list[ManualEntry]:
    """The entries of one installed package, sorted by name.

    An object that has several names is one entry, under the one with the fewest parts and characters; so are
    objects with the same docstring. Private, deprecated and undocumented objects, and those with nothing but
    a summary, are left out.

    Raises:
        ConfigError: the package cannot be imported.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        candidates = sorted(_list_objects(package, _import_modules(package)), key=lambda item: _canonical_order(item[0]))
        entries, seen = [], set()
        for name, namespace, target in candidates:
            documentation = _read_docstring(target)
            if id(target) in seen or documentation in seen or _is_deprecated(documentation):
                continue
            seen.update((id(target), documentation))
            signature, sentence, body = parse_docstring(documentation)
            if body:
                entries.append(ManualEntry(namespace, name, signature or _read_signature(name, target), body, package, sentence))
    return sorted(entries, key=lambda entry: entry.name)


def parse_docstring(documentation: str) -> tuple[str, str, str]:
    """(signature, first sentence, rest) of a cleaned docstring; the signature is empty when the docstring has none.

    Compiled functions carry their signature as the first lines: `name(arguments) -> result`.
    """
    signature, documentation = _split_signature(documentation)
    first, _, rest = documentation.partition("\n\n")
    if _NOT_A_SUMMARY.search(first):
        return signature, "", _ROLE.sub(r"\1", f"{first}\n\n{rest}").strip("\n")
    end = _SENTENCE_END.search(first)
    cut = end.end() if end else len(first)
    sentence = " ".join(_ROLE.sub(r"\1", first[:cut]).replace("`", "").split())
    body = f"{first[cut:].strip()}\n\n{rest}" if first[cut:].strip(" \n`)\"'") else rest
    return signature, sentence, _ROLE.sub(r"\1", body).strip("\n ")


def _split_signature(documentation: str) -> tuple[str, str]:
    """The leading `name(arguments) -> result` of a docstring, which ends with the line that closes its brackets."""
    if not re.match(r"[\w.]+\(", documentation):
        return "", documentation
    lines = documentation.split("\n")
    depth, taken = 0, 0
    while taken < len(lines) and lines[taken].strip() and (depth > 0 or taken == 0):
        depth += lines[taken].count("(") - lines[taken].count(")")
        taken += 1
    signature = " ".join(" ".join(lines[:taken]).split())
    return signature[:_MAX_SIGNATURE_CHARS], "\n".join(lines[taken:]).lstrip("\n")


def _import_modules(package: str) -> list[tuple[str, ModuleType]]:
    try:
        root = importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"{package!r} cannot be imported ({error}). Install it or take it out of the list.") from error
    if package in _MODULES:
        names = [f"{package}.{part}" for part in _MODULES[package].split()]
    else:
        names = [f"{package}.{info.name}" for info in pkgutil.iter_modules(getattr(root, "__path__", []))]
    modules = [(package, root)]
    for name in sorted(names):
        if _is_public(name):
            try:
                modules.append((name, importlib.import_module(name)))
            except Exception:
                # A module may need an optional dependency, a device or another version: the manual goes without it.
                continue
    return modules


def _list_objects(package: str, modules: list[tuple[str, ModuleType]]) -> Iterator[tuple[str, str, Any]]:
    """(qualified name, namespace, object) of every public function, class and member, under each of its names."""
    classes: list[tuple[str, type]] = []
    for module_name, module in modules:
        for attribute in _list_public_names(module):
            target = getattr(module, attribute, None)
            if not _belongs_to(target, package):
                continue
            if isinstance(target, type):
                classes.append((f"{module_name}.{attribute}", target))
            elif callable(target):
                yield f"{module_name}.{attribute}", module_name, target
    known = {cls for _, cls in classes}
    walked: set[type] = set()
    classes.sort(key=lambda item: _canonical_order(item[0]))
    for name, cls in classes:
        if cls in walked:
            continue
        walked.add(cls)
        yield name, name.rpartition(".")[0], cls
        for attribute, member in _list_members(cls, known, package):
            accessor = _find_accessor(member)
            if accessor is None:
                yield f"{name}.{attribute}", name, member
            elif accessor not in walked and _belongs_to(accessor, package):
                classes.append((f"{name}.{attribute}", accessor))


def _list_public_names(module: ModuleType) -> list[str]:
    declared = getattr(module, "__all__", None)
    names = declared if declared is not None else dir(module)
    return sorted({name for name in names if not name.startswith("_")})


def _list_members(cls: type, known: set[type], package: str) -> Iterator[tuple[str, Any]]:
    """The public members that `cls` defines or takes from a base class that is not itself in the manual."""
    for attribute in sorted(name for name in dir(cls) if not name.startswith("_")):
        owner = next((base for base in cls.__mro__ if attribute in vars(base)), None)
        if owner is None or (owner is not cls and owner in known) or not _belongs_to(owner, package):
            continue
        member = vars(owner)[attribute]
        if isinstance(member, ModuleType) or not (callable(member) or hasattr(member, "__get__")):
            continue
        if isinstance(member, classmethod | staticmethod):
            member = member.__func__
        if isinstance(member, property) and member.fget is not None and not _find_accessor(member):
            member = member.fget
        yield attribute, member


def _find_accessor(member: Any) -> type | None:
    """The class behind an accessor such as `Series.str`, whose members are used as `Series.str.cat`."""
    held = getattr(member, "_accessor", None)
    if isinstance(held, type):
        return held
    if isinstance(member, property) and member.fget is not None:
        returned = getattr(member.fget, "__annotations__", {}).get("return")
        found = member.fget.__globals__.get(returned) if isinstance(returned, str) else returned
        if isinstance(found, type) and found.__name__.lower().endswith("namespace"):
            return found
    return None


def _belongs_to(target: Any, package: str) -> bool:
    module = getattr(target, "__module__", None) or type(target).__module__
    return isinstance(module, str) and (module == package or module.startswith((f"{package}.", f"_{package}")))


def _is_public(name: str) -> bool:
    return not any(part.startswith("_") or part in _SKIPPED_PARTS for part in name.split("."))


def _canonical_order(name: str) -> tuple[int, int, str]:
    return name.count("."), len(name), name


def _read_docstring(target: Any) -> str:
    documentation = vars(target).get("__doc__") if isinstance(target, type) else getattr(target, "__doc__", None)
    return _ADDRESS.sub("", inspect.cleandoc(documentation).strip()) if isinstance(documentation, str) else ""


def _is_deprecated(documentation: str) -> bool:
    return "deprecated" in documentation[:300].lower()


def _read_signature(name: str, target: Any) -> str:
    try:
        text = _ADDRESS.sub("", str(inspect.signature(target)))
    except (ValueError, TypeError):
        return ""
    return (name.rpartition(".")[2] + text)[:_MAX_SIGNATURE_CHARS]


_SHINGLE_WORDS = 3
_MIN_JACCARD = 0.5
# A shingle on more pages than this is boilerplate (`axis int default None`): it tells nothing and costs most of the time.
_MAX_SHINGLE_PAGES = 60
_WORD = re.compile(r"[a-z]+")


def compute_groups(entries: Sequence[ManualEntry]) -> list[str]:
    """The group of each entry: the name of the first of its near-duplicates.

    Near-duplicates have the same first sentence, or the same last name in one namespace family (`Series.str.cat` and
    `Index.str.cat` of pandas), or bodies whose word 3-shingles have a Jaccard similarity of at least 0.5, own
    names and boilerplate aside.  The relation is taken as transitive.
    """
    keys: list[list[object]] = [
        [("sentence", normalise(entry.sentence) or entry.name), ("name", entry.package, entry.name.rpartition(".")[2])]
        for entry in entries
    ]
    for left, right in _find_similar_bodies(entries):
        keys[left].append(("bodies", left, right))
        keys[right].append(("bodies", left, right))
    return [entries[first].name for first in compute_components(keys)]


def normalise(text: str) -> str:
    """Lower-case words of letters, one space apart."""
    return " ".join(_WORD.findall(text.lower()))


def _find_similar_bodies(entries: Sequence[ManualEntry]) -> list[tuple[int, int]]:
    """Pairs of entries whose bodies are similar, by exact counts of common shingles in a sparse product."""
    columns: dict[tuple[str, ...], int] = {}
    rows, places = [], []
    for row, entry in enumerate(entries):
        shingles = {columns.setdefault(shingle, len(columns)) for shingle in _compute_shingles(entry)}
        rows.extend([row] * len(shingles))
        places.extend(shingles)
    ones = np.ones(len(rows), dtype=np.int32)
    matrix = sparse.csr_array((ones, (rows, places)), shape=(len(entries), max(len(columns), 1)))
    informative = np.flatnonzero(np.asarray(matrix.sum(axis=0)).ravel() <= _MAX_SHINGLE_PAGES)
    matrix = matrix[:, informative]
    sizes = np.asarray(matrix.sum(axis=1)).ravel()
    common = sparse.coo_array(sparse.triu(matrix @ matrix.T, k=1))
    left, right = common.coords
    similar = common.data >= _MIN_JACCARD * (sizes[left] + sizes[right] - common.data)
    return list(zip(left[similar].tolist(), right[similar].tolist(), strict=True))


def _compute_shingles(entry: ManualEntry) -> set[tuple[str, ...]]:
    own_words = set(_WORD.findall(entry.name.lower()))
    words = [word for word in _WORD.findall(f"{entry.sentence} {entry.body}".lower()) if word not in own_words]
    return {tuple(words[start : start + _SHINGLE_WORDS]) for start in range(len(words) - _SHINGLE_WORDS + 1)}


_MIN_BODY_CHARS = 80
_QUESTION_WORDS = range(4, 41)
_REFERENCES = ("see ", "alias ", "refer ", "in-place version", "out-of-place version")


def build_manuals(out_dir: Path, packages: Sequence[str], limit_pages: int = 0) -> None:
    """Write `out_dir/<package>/<module>.pdf`, one page an entry, and `out_dir/questions.jsonl`.

    With a limit, every package gives an even share of the pages, whole modules as far as they fit.

    Raises:
        ConfigError: a package cannot be imported, or has no documented names.
    """
    manual: list[ManualEntry] = []
    for position, package in enumerate(packages):
        entries = read_entries(package)
        if not entries:
            raise ConfigError(f"{package!r} has no public names with docstrings. Take it out of the list.")
        # What earlier packages left over goes to the later ones.
        share = -(-(limit_pages - len(manual)) // (len(packages) - position))
        manual += take_chapters(entries, share) if limit_pages else entries
    chapters = gather_chapters(manual).items()
    places = write_chapters(out_dir, {f"{entries[0].package}/{module}.pdf": entries for module, entries in chapters})
    artifacts.write_jsonl(out_dir / QUESTIONS_NAME, _phrase_questions(manual, places))


def _phrase_questions(entries: Sequence[ManualEntry], places: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    groups = compute_groups(entries)
    same_sentence: dict[str, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        same_sentence[normalise(entry.sentence)].append(index)
    rows: list[dict[str, Any]] = []
    for indices in same_sentence.values():
        if not any(_is_askable(entries[index]) for index in indices) or len(indices) > MAX_EVIDENCE_PAGES:
            continue
        first = entries[indices[0]]
        rows.append(
            {
                "id": f"manual-{first.name}",
                "question": first.sentence,
                "evidence": [places[entries[index].name] for index in indices],
                "answers": [entries[index].name for index in indices],
                "category": first.package,
                "group": groups[indices[0]],
            }
        )
    return rows


def _is_askable(entry: ManualEntry) -> bool:
    refers = entry.sentence.lower().startswith(_REFERENCES)
    return len(entry.body) >= _MIN_BODY_CHARS and len(entry.sentence.split()) in _QUESTION_WORDS and not refers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="to be written")
    parser.add_argument("--packages", nargs="+", default=["numpy", "pandas", "polars", "pyarrow", "torch"])
    parser.add_argument("--limit-pages", type=int, default=0, help="of which each package gives an even share; 0 takes all")
    options = parser.parse_args()
    build_manuals(options.folder, options.packages, options.limit_pages)


if __name__ == "__main__":
    main()
