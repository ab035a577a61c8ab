"""The documentation is whole: links lead somewhere, every page is in the site's list, and every option is described."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from generated_pages import OPTIONS_PAGE, ROOT_FILES, write_options_page, write_root_page
from notebook_cells import read_cells
from pydantic import BaseModel

from drag_ray import errors
from drag_ray.pipeline.run_config import RunConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = [*PAGES, *sorted(ROOT.glob("*.md")), ROOT / "benchmarks" / "README.md"]
GENERATED = {ROOT / "docs" / name: write_root_page(name) for name in ROOT_FILES}
GENERATED[ROOT / "docs" / OPTIONS_PAGE] = write_options_page()
GENERATED[ROOT / "docs" / "notebook.md"] = "\n\n".join("".join(cell["source"]) for cell in read_cells("markdown"))
SCREENSHOT = r"""<picture>
  <source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">
  <img alt="([^"]*)" src="([^"]+)">
</picture>"""
DRAWN = {"svg", "title", "style", "defs", "marker", "rect", "text", "path"}


def read(path: Path) -> str:
    return GENERATED[path] if path in GENERATED else path.read_text(encoding="utf-8")


def list_links(text: str) -> list[str]:
    without_code = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", without_code) if "://" not in link]


def list_anchors(text: str) -> set[str]:
    """As Python-Markdown and GitHub make them of the headings that we write."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("path", [*WRITTEN, *GENERATED], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link in list_links(read(path)):
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file in GENERATED or file.exists(), link
        assert not anchor or anchor in list_anchors(read(file)), link


def list_pictures(path: Path) -> list[tuple[str, Path, Path]]:
    """The alternative text of each picture of a page, its file in light, and that in dark, which of a drawing is the same."""
    text = read(path)
    drawings = [(file, alt, file) for alt, file in re.findall(r"!\[([^]]*)\]\(([^)\s]+)\)", text)]
    return [(alt, path.parent / light, path.parent / dark) for dark, alt, light in drawings + re.findall(SCREENSHOT, text)]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_pictures_are_there_in_both_schemes_and_say_what_they_show(path: Path) -> None:
    pictures = list_pictures(path)
    assert len(pictures) == len(re.findall(r"!\[|<img", read(path)))
    for alt, light, dark in pictures:
        assert len(alt.split()) >= 10, alt
        assert light.is_file()
        assert dark.is_file()
        assert dark.name == light.name.replace("-light.png", "-dark.png")
        assert dark != light or "prefers-color-scheme: dark" in read(light)


def test_every_picture_is_shown_and_small() -> None:
    shown = {file.resolve() for path in WRITTEN for _, *files in list_pictures(path) for file in files}
    assert shown == set((ROOT / "docs" / "images").iterdir())
    assert [path.name for path in shown if path.stat().st_size > 150 * 1024] == []


def test_drawings_load_and_run_nothing() -> None:
    for path in (ROOT / "docs" / "images").glob("*.svg"):
        drawing = ElementTree.parse(path).getroot()
        assert drawing.findtext("{*}title")
        assert {element.tag.partition("}")[2] for element in drawing.iter()} <= DRAWN
        assert "url(" not in path.read_text().replace("url(#", "")


def test_the_site_lists_every_page() -> None:
    found = re.findall(r"[\w/]+\.md", str(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(found) == sorted(str(path.relative_to(ROOT / "docs")) for path in [*PAGES, *GENERATED])


def list_options(config_type: type[BaseModel], path: str = "") -> list[str]:
    options: list[str] = []
    for name, field in config_type.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            options += list_options(field.annotation, f"{path}{name}.")
        else:
            options.append(path + name)
    return options


def test_every_option_is_described_with_its_text() -> None:
    rows = {row.split("`")[1]: row for row in write_options_page().splitlines() if row.startswith("| `")}
    assert sorted(rows) == sorted(list_options(RunConfig))
    assert rows["finetune.dpo.beta"].startswith("| `finetune.dpo.beta` | number | `0.1` | how close the policy is kept")
    assert not [name for name, row in rows.items() if row.endswith("|  |")]


def test_every_kind_of_error_is_explained() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.DragRayError)}
    told = re.findall(r"^\| (`\w+Error`(?:, `\w+Error`)*) \|", read(ROOT / "docs" / "troubleshooting.md"), re.MULTILINE)
    assert {name for names in told for name in re.findall(r"\w+", names)} == kinds - {"DragRayError"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


def test_the_tests_and_files_that_security_names_are_there() -> None:
    named = re.findall(
        r"`((?:tests|drag_ray|runtime_env|benchmarks)/[\w/.*-]+|test_\w+(?:\.py)?)(?:::(\w+))?`",
        read(ROOT / "docs" / "security.md"),
    )
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) > 40
    for place, test in named:
        if place.startswith("test_"):
            found = [path for path in sources if path.name == place] or [
                path for path in sources if f"def {place}(" in sources[path]
            ]
        else:
            found = list(ROOT.glob(place))
        assert found, place
        assert not test or any(f"def {test}(" in sources[path] for path in found), test
