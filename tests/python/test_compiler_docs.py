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
    plain = re.sub(r"^# .*\n", "", re.sub(r"[ \t]+# .*", "", said), flags=re.M)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text.split("## 1.", 1)[1], re.S | re.M)
    shown = [(language, block) for language, block in blocks if language != "python"]
    assert len(shown) == 5
    for language, block in shown:
        assert block.strip() in (said if language else plain)
    for example in [block for language, block in blocks if language == "python"]:
        code = example.replace("torch", "wick").replace("stages/", f"{tmp_path}/stages/")
        exec(f"import wick\n{code}", {})
