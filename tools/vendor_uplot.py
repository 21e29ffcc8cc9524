"""Fetch uPlot from the npm registry into src/rlclinic/_vendor/uplot/ and write down what was fetched.

    python tools/vendor_uplot.py              # the version below, with npm
    python tools/vendor_uplot.py --check      # only compare what is there with its checksums

To move to another version: change VERSION and TARBALL (`npm view uplot@VERSION dist.integrity`), run, look at the page.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "1.6.32"
TARBALL = "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
FILES = ("dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE")
HOME = Path(__file__).resolve().parents[1] / "src" / "rlclinic" / "_vendor" / "uplot"


def fetch() -> dict[str, bytes]:
    """The wanted files of the package by their last name; raises SystemExit when it is not the one we know."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"uplot@{VERSION}"]
        packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
        content = (Path(folder) / packed).read_bytes()
        found = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
        if found != TARBALL:
            raise SystemExit(f"uplot {VERSION} of the registry is {found}, wanted {TARBALL}")
        with tarfile.open(Path(folder) / packed) as archive:
            return {name.rpartition("/")[2]: _member(archive, f"package/{name}") for name in FILES}


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    if member is None:
        raise SystemExit(f"no {name} in the package")
    return member.read()


def wrong() -> list[str]:
    """Files that differ from what was written down when they were fetched."""
    noted = json.loads((HOME / "fetched.json").read_text(encoding="utf-8"))
    named: dict[str, str] = noted["sha256"]
    return [name for name, sum in named.items() if hashlib.sha256((HOME / name).read_bytes()).hexdigest() != sum]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the files with their checksums")
    if parser.parse_args().check:
        for name in wrong():
            print(f"{name} is not what was fetched", file=sys.stderr)
        return 1 if wrong() else 0
    HOME.mkdir(parents=True, exist_ok=True)
    files = fetch()
    for name, content in files.items():
        (HOME / name).write_bytes(content)
    noted = {
        "package": "uplot",
        "version": VERSION,
        "license": "MIT",
        "from": f"https://registry.npmjs.org/uplot/-/uplot-{VERSION}.tgz",
        "tarball": TARBALL,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    (HOME / "fetched.json").write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")
    print(f"uplot {VERSION}: {', '.join(files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
