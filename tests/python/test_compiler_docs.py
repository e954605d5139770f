"""docs/compiler.md shows what is printed."""

import os
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "compiler.md"


def test_stages(tmp_path):
    text = PAGE.read_text()
    program = re.search(r"```python\n(.*?)```", text, re.S).group(1).replace("import torch", "import wick as torch")
    file = tmp_path / "program.py"
    file.write_text(program)
    environment = {**os.environ, "WICK_DEBUG_DIR": str(tmp_path / "stages"), "WICK_CPU": ""}
    subprocess.run([sys.executable, str(file)], env=environment, check=True)
    said = "".join(f.read_text() for f in sorted((tmp_path / "stages").iterdir()))
    plain = re.sub(r"\s+# .*", "", said)
    blocks = re.findall(r"```(c?)\n(.*?)```", text.split("## 1.", 1)[1], re.S)
    assert len(blocks) == 4
    for language, block in blocks:
        assert block.strip() in (said if language else plain)
