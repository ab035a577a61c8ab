"""Look every pinned package up among the known vulnerabilities of OSV (https://osv.dev), with pip-audit.

The exit status is 1 if one has a known vulnerability, and also if it could not be found out: what was not checked is named.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from requirements import LISTS

_FOLDER = Path(__file__).parent
_COMMAND = (
    *(sys.executable, "-m", "uv", "run", "--quiet", "--no-project", "--isolated"),
    *("--with-requirements", str(_FOLDER / "audit.txt"), "pip-audit", "--disable-pip", "--require-hashes"),
    *("--progress-spinner", "off", "--vulnerability-service", "osv", "--format", "json", "--requirement"),
)


def audit(requirements: Path, command: Sequence[str] = _COMMAND) -> list[str]:
    """List the faults of pinned packages: vulnerabilities, or that they could not be looked up."""
    finished = subprocess.run([*command, str(requirements)], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(finished.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = finished.stderr.strip().splitlines() or [f"exit status {finished.returncode}"]
        return [f"NOT CHECKED: {requirements.name} against https://api.osv.dev ({said[-1]})"]
    skipped = [f"NOT CHECKED: {package['name']}: {package['skip_reason']}" for package in packages if "skip_reason" in package]
    return skipped + [
        f"{package['name']} {package['version']}: {found['id']}, mended in {', '.join(found['fix_versions']) or 'no version'}"
        for package in packages
        for found in package.get("vulns", ())
    ]


def main() -> None:
    problems = [problem for name in LISTS for problem in audit(_FOLDER / f"{name}.txt")]
    print("\n".join(problems) or "no pinned package has a known vulnerability")
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
