"""Take the pictures of the report that the documentation shows, from the page as it is now.

    python tools/screenshots.py [FOLDER]

Writes report.png (light), report-dark.png and report-phone.png to FOLDER, docs/ by default. Needs the extra test-browser
and a Chromium (see tests/browser.py). The PNGs are reduced to a palette of 256 colours.
"""

from __future__ import annotations

import base64
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import browser  # noqa: E402

MOST = 250_000
"""Bytes of one picture (ours: three of them may not outweigh the documentation they stand in)."""
VIEWS = {
    "report": {"width": 1200, "height": 1100},
    "report-dark": {"width": 1200, "height": 1100, "dark": True},
    "report-phone": {"width": 400, "height": 900, "phone": True},
}
_PIXELS = """async coded => {
  const bytes = Uint8Array.from(atob(coded), c => c.charCodeAt(0)), map = await createImageBitmap(new Blob([bytes]));
  const canvas = new OffscreenCanvas(map.width, map.height), room = canvas.getContext('2d');
  room.drawImage(map, 0, 0);
  const data = room.getImageData(0, 0, map.width, map.height).data, parts = [];
  for (let i = 0; i < data.length; i += 30000) parts.push(String.fromCharCode(...data.subarray(i, i + 30000)));
  return [map.width, map.height, btoa(parts.join(''))];
}"""


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place, browser.started() as chrome:
        page = browser.written(Path(place), browser.examined("demo"), "demo")
        for name, view in VIEWS.items():
            with browser.opened(chrome, page, **view) as sheet:  # type: ignore[arg-type]
                shot = base64.b64encode(sheet.page.screenshot()).decode()
                wide, high, pixels = sheet.page.evaluate(_PIXELS, shot)
                picture = reduced(np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(high, wide, 4))
            if len(picture) > MOST:
                raise SystemExit(f"{name}.png would have {len(picture):,} bytes, more than {MOST:,}")
            (folder / f"{name}.png").write_bytes(picture)
            print(f"{folder / name}.png  {len(picture):,} bytes")


# ------------------------------------------------------------------------------------------------------- palettes


def reduced(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of ``pixels`` (height, width, 4) with the 256 most frequent colours, every other one as the nearest of them."""
    packed = pixels[:, :, :3].astype(np.uint32) @ np.array([65536, 256, 1], dtype=np.uint32)
    colours, place, many = np.unique(packed, return_inverse=True, return_counts=True)
    kept = np.argsort(-many, kind="stable")[:256]
    rgb = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.int64)
    nearest = np.concatenate([((part[:, None] - rgb[kept]) ** 2).sum(axis=2).argmin(axis=1)
                              for part in np.array_split(rgb, max(1, len(rgb) // 4096))])  # fmt: skip
    indices = nearest[place.reshape(packed.shape)].astype(np.uint8)
    height, width = indices.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), indices], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (
        (b"IHDR", head),
        (b"PLTE", rgb[kept].astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in (*parts, (b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs")
