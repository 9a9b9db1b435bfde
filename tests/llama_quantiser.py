"""llama.cpp's own quantiser for tests: `llama-quantize` on the PATH, or the library that npm has built.

    npm install --no-save --prefix .venv @node-llama-cpp/linux-x64@3.22.1

pip has no build that runs on every Linux. The npm package has the library without the program, so a program of the
same form calls it.
"""

import os
import shutil
import sys
from pathlib import Path

LIBRARY = Path(sys.prefix) / "node_modules" / "@node-llama-cpp" / "linux-x64" / "bins" / "linux-x64"
_PROGRAM = """#!{python}
import ctypes, pathlib, sys
folder = pathlib.Path({folder!r})
given, made, kind = sys.argv[1:]


class How(ctypes.Structure):  # the first fields of llama_model_quantize_params, and room for the others
    _fields_ = [("threads", ctypes.c_int32), ("kind", ctypes.c_int), ("others", ctypes.c_char * 1024)]


base, ggml, llama = (
    ctypes.CDLL(str(next(folder.glob(name))), mode=ctypes.RTLD_GLOBAL)
    for name in ("libggml-base*", "libggml.v*", "libllama.v*")
)
ggml.ggml_backend_load_all_from_path(str(folder).encode())
llama.llama_backend_init()
llama.llama_model_quantize_default_params.restype = How
how = llama.llama_model_quantize_default_params()
how.threads, how.kind = 1, {kinds!r}[kind]
sys.exit(llama.llama_model_quantize(given.encode(), made.encode(), ctypes.byref(how)))
"""
_KINDS = {"Q8_0": 7, "Q3_K_M": 12, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18}
"""The numbers of llama.h."""


def folder_of_quantiser(beside: Path) -> str | None:
    """The folder that holds `llama-quantize`, made in `beside` if it is not on the PATH; None if there is none."""
    if found := shutil.which("llama-quantize"):
        return str(Path(found).parent)
    if not LIBRARY.is_dir():
        return None
    beside.mkdir(parents=True, exist_ok=True)
    program = beside / "llama-quantize"
    program.write_text(_PROGRAM.format(python=sys.executable, folder=str(LIBRARY), kinds=_KINDS))
    program.chmod(0o755)
    return str(beside)


def path_with(folder: str) -> str:
    return os.pathsep.join((folder, os.environ.get("PATH", "")))
