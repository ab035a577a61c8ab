"""Published systems that this project grew from, a package each, with what is one system's own and nobody else's.

Registries find its parts by name (`variants.load_variant`): `tools`, `agent.tasks`, `process` (rewards) and
`process.interchange`. Only later packages import them by themselves.
"""
