"""The files that the tutorials show, as a reader would write them, to run in the contract tests."""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PAGES = sorted((Path(__file__).parents[1] / "docs" / "extend").glob("*.md"))
BLOCK = re.compile(r'^```\w+ title="([\w/.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)

_FOLDER = TemporaryDirectory(prefix="tutorials-")  # removed at exit

FILES = {name: text for page in PAGES for name, text in BLOCK.findall(page.read_text())}
for _name, _text in FILES.items():
    _path = Path(_FOLDER.name, _name)
    _path.parent.mkdir(parents=True, exist_ok=True)
    _path.write_text(_text)
sys.path.insert(0, _FOLDER.name)  # as the folder from which a reader starts the command

CONFIG_DIR = Path(_FOLDER.name, "my")
"""The reader's `--config-dir`."""

SEARCHED = f"hydra.searchpath=[file://{CONFIG_DIR}]"
"""The same as an override, for `hydra.compose`."""
