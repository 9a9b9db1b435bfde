"""Makes torch answer as a CUDA build without a GPU does, in every process that has this folder on its PYTHONPATH.

Such a build names the accelerator that it was built for, whether or not there is one.
"""

import importlib.abc
import importlib.util
import sys


class Found(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads `torch.accelerator` as ever, and then replaces one function of it."""

    def find_spec(self, name, path, target=None):
        if name != "torch.accelerator":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)

        def current_accelerator(check_available=False):
            import torch

            return None if check_available else torch.device("cuda")

        module.current_accelerator = current_accelerator


sys.meta_path.insert(0, Found())
