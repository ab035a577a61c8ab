"""Pages for the browser: one HTML file each that needs nothing beside itself, all in one style; and pieces for notebooks."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render_page(template: str, **values: Any) -> str:
    """The page of a template that extends `transcripts/webpage.html.j2`, or the piece of one that does not.

    Text is escaped: a model can write anything.
    """
    environment = Environment(
        loader=PackageLoader("drag_ray", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(**values)
