"""Links the Python files of the package beside its compiled part: stage.py SOURCE_FOLDER BUILD_FOLDER."""

import os
import sys

source, build = sys.argv[1:]
wanted = {name for name in os.listdir(source) if name not in ("meson.build", "__pycache__")}
for name in os.listdir(build):
    path = os.path.join(build, name)
    if os.path.islink(path) and os.path.dirname(os.readlink(path)) == source and name not in wanted:
        os.unlink(path)  # its source is gone
for name in wanted:
    path = os.path.join(build, name)
    if not os.path.lexists(path):
        os.symlink(os.path.join(source, name), path)
