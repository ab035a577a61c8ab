"""The routes that load and unload adapters while the endpoint runs, by vLLM's names and with its fields.

vLLM's own would change the one engine that the request reaches, and drop from it an adapter that requests still use.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from drag_ray.serve.access.limits import RefusalError, parse_body
from drag_ray.serve.adapters.adapter_registry import AdapterLoader
from drag_ray.serve.loading import AdapterFolders
from drag_ray.serve.search.search_routes import refusing


def add_adapter_routes(app: Any, folders: AdapterFolders, loader: AdapterLoader) -> None:
    """Add the routes to a Starlette application.

    Args:
        app: the application.
        folders: what may be loaded.
        loader: loads into all engines.
    """

    async def load(request: Request) -> Response:
        wanted = folders.check(parse_body(await request.body()))
        await loader.load(wanted.name, wanted.path, wanted.replaces)
        return PlainTextResponse(f"Success: LoRA adapter '{wanted.name}' added successfully.{wanted.warning}")

    async def unload(request: Request) -> Response:
        name = parse_body(await request.body()).get("lora_name")
        if not isinstance(name, str):
            raise RefusalError(400, "lora_name must be a string.")
        await loader.unload(name)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    app.add_route("/v1/load_lora_adapter", refusing(load), methods=["POST"])
    app.add_route("/v1/unload_lora_adapter", refusing(unload), methods=["POST"])
