"""Pages that the package serves to browsers: rendered here, whole in one answer, and closed to everything from elsewhere."""

import secrets
from typing import Any

from starlette.responses import HTMLResponse

from drag_ray.transcripts.webpage import render_page

PRIVATE_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of what a browser is neither to keep, nor to name to another site, nor to show in one."""


def answer_page(template: str, **values: Any) -> HTMLResponse:
    """A page of a template, whose scripts and styles alone run: they carry the `nonce` that the template is given."""
    nonce = secrets.token_urlsafe()
    page = HTMLResponse(render_page(template, nonce=nonce, **values), headers=PRIVATE_HEADERS)
    page.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page
