"""Methods: which parameters are trained.

| method   | trained                                                               | frozen                         |
|----------|-----------------------------------------------------------------------|--------------------------------|
| `full`   | everything                                                            |                                |
| `lora`   | two small matrices beside each target layer, by peft                  | everything else                |
| `dora`   | the same, and the length of each row of the target's weight           | everything else                |
| `qlora`  | as `lora`                                                             | its linear layers are in 4 bits |
| `frozen` | the head                                                              | the body                       |
| `bitfit` | biases                                                                | everything else                |

The head of a classifier is new, so it is trained by every method.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import nn

from surefoot.errors import RecipeError, did_you_mean, installing
from surefoot.finetuning.neftune import add_noise
from surefoot.finetuning.quiet import quiet
from surefoot.finetuning.tasks import Task
from surefoot.recipe.recipe import Precision

Method = Literal["qlora", "frozen", "bitfit", "lora", "dora", "full"]
"""From the least memory to the most, for a large model: `surefoot plan --fit --largest method` goes through them."""
BY_PEFT = ("lora", "dora", "qlora")
ALL_LINEAR = "all-linear"
_COMPUTE = {"bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16, "16-mixed": torch.float16}
_PEFT_TASKS = {"causal": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM", "classification": "SEQ_CLS"}


@contextmanager
def peft_unwarned() -> Iterator[None]:
    """Around calls of peft, which uses names of transformers that have newer ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@dataclass(frozen=True)
class Adapt:
    """Makes a model ready for a method. It is called after the model has its first weights."""

    method: Method
    task: Task
    precision: Precision
    rank: int
    alpha: int
    dropout: float
    targets: str
    rslora: bool = False
    modules_to_save: str = ""
    neftune: float | None = None

    def __post_init__(self) -> None:
        """Loads the libraries now: in a fake world they would make fake tensors."""
        for name, given in (("rslora", self.rslora), ("modules_to_save", self.modules_to_save)):
            if given and self.method not in BY_PEFT:
                raise RecipeError(f"{name} belongs to adapters: set method to {', '.join(BY_PEFT)}, not {self.method}")
        needed = {"lora": ["peft"], "dora": ["peft"], "qlora": ["peft", "bitsandbytes"]}.get(self.method)
        if needed is None:
            return
        try:
            for each in needed:
                importlib.import_module(each)
        except ImportError as error:
            what = f"method={self.method} needs {' and '.join(needed)}"
            raise RecipeError(f"{what}: {installing('finetune', *needed)}") from error
        if importlib.util.find_spec("torchao") is not None:  # peft asks it about each layer
            with quiet():
                importlib.import_module("torchao")

    def __call__(self, model: nn.Module) -> nn.Module:
        if self.method in BY_PEFT:
            model = self._with_adapters(model)
            if self.held != self.precision:
                _train_in_float32(model)
        elif self.method != "full":
            self._freeze(model)
        if self.neftune is not None:
            add_noise(model, self.neftune)
        return model

    def _freeze(self, model: nn.Module) -> None:
        head = set(map(id, head_parameters(model)))
        classifies = self.task == "classification"
        for name, parameter in model.named_parameters():
            of_head = id(parameter) in head and (self.method == "frozen" or classifies)
            parameter.requires_grad_(of_head or (self.method == "bitfit" and name.endswith("bias")))
        if not any(each.requires_grad for each in model.parameters()):
            raise RecipeError(
                f"method={self.method} trains {'biases' if self.method == 'bitfit' else 'the head'}, and "
                f"{type(model).__name__} has none; use method=lora"
            )

    def _with_adapters(self, model: nn.Module) -> nn.Module:
        import peft

        if self.method == "qlora":
            model.is_loaded_in_4bit = True  # type: ignore[assignment]  # peft takes its layer for 4 bits if this is set
        kept = [*self._saved(model), *(head_modules(model) if self.task == "classification" else ())]
        targets = targets_of(model, self.targets)
        takes_text = getattr(model, "main_input_name", "") == "input_ids"
        config = peft.LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules=targets,
            use_dora=self.method == "dora",
            use_rslora=self.rslora,
            task_type=_PEFT_TASKS.get(self.task) if takes_text else None,
            modules_to_save=kept or None,
            exclude_modules=kept if kept and targets == ALL_LINEAR else None,
            fan_in_fan_out=any(type(each).__name__ == "Conv1D" for each in model.modules()),
        )
        try:
            with peft_unwarned():
                return peft.get_peft_model(model, config)
        except ValueError as error:
            linear = sorted({name.rpartition(".")[2] for name in linear_layers(model)})
            raise RecipeError(
                f"method={self.method}: peft cannot put adapters on targets={self.targets!r}: {error}\n"
                f"the linear layers of {type(model).__name__} are {', '.join(linear)}"
            ) from error

    def _saved(self, model: nn.Module) -> list[str]:
        """The modules that are trained whole beside the adapters, as the user names them."""
        names = _parts(self.modules_to_save)
        for name in names:
            found = [module for path, module in model.named_modules() if _ends(path, name)]
            if not found:
                known = dict.fromkeys(path.rpartition(".")[2] for path, _ in model.named_modules() if path)
                raise RecipeError(
                    f"modules_to_save={name}: {type(model).__name__} has no such module; {did_you_mean(name, known)}"
                    "a module is named by the end of its path, such as lm_head"
                )
            own = {id(each) for module in found for each in module.parameters()}
            outside = (path for path, each in model.named_parameters(remove_duplicate=False) if id(each) in own)
            if others := [path for path in outside if not any(_ends(parent, name) for parent in _parents(path))]:
                raise RecipeError(
                    f"modules_to_save={name}: its weights are also {others[0]}, and peft would train a copy of them; "
                    "use method=full, or a model that does not tie them"
                )
        return names

    def built(self, build: Callable[[], nn.Module]) -> nn.Module:
        """The model that `build` makes, for `qlora` with its linear layers in 4 bits."""
        if self.method != "qlora":
            return build()
        from surefoot.finetuning.four_bit import built_in_four_bits

        def names(model: nn.Module) -> list[str]:
            return four_bit_names(model, self._saved(model))

        return built_in_four_bits(build, names, _COMPUTE.get(self.precision, torch.float32))

    @property
    def held(self) -> Precision:
        """The precision whose format the first weights are held in.

        What stays frozen gains nothing from float32 that bfloat16 does not have: products are computed in bfloat16
        anyway. float16 has a smaller range, so `16-mixed` keeps float32.
        """
        return "bf16-true" if (self.method, self.precision) == ("qlora", "bf16-mixed") else self.precision


def _train_in_float32(model: nn.Module) -> None:
    """Holds in float32 what is trained: a new head, and modules that are trained whole. peft does so with adapters."""
    for module in model.modules():
        if any(each.requires_grad for each in module.parameters(recurse=False)):
            module.float()


def _parts(text: str) -> list[str]:
    """The names in a text with commas between them."""
    return [each.strip() for each in text.split(",") if each.strip()]


def _ends(path: str, name: str) -> bool:
    """Whether a path is a name, or ends with it."""
    return path == name or path.endswith(f".{name}")


def _parents(path: str) -> Iterator[str]:
    """The paths of the modules around a parameter."""
    parts = path.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


def targets_of(model: nn.Module, targets: str) -> str | list[str]:
    """The layers that get adapters, as peft takes them. A name with `*`, `?` or `[` is a pattern of whole paths."""
    if targets == ALL_LINEAR:
        return targets
    linear, found = linear_layers(model), dict[str, None]()
    for name in _parts(targets):
        matched = [path for path in linear if fnmatchcase(path, name)] if set(name) & set("*?[") else [name]
        if not matched:
            raise RecipeError(
                f"targets={name}: no linear layer has such a path; the paths are {linear[0]} to {linear[-1]}"
                if linear
                else f"targets={name}: the body of {type(model).__name__} has no linear layer"
            )
        found |= dict.fromkeys(matched)
    return list(found)


def four_bit_names(model: nn.Module, without: Iterable[str] = ()) -> list[str]:
    """The names of the layers that `qlora` puts into 4 bits, without modules that are trained whole."""
    kept = set(getattr(model, "_keep_in_fp32_modules", None) or ())  # transformers names what must not be rounded
    linear = [name for name in linear_layers(model) if type(model.get_submodule(name)) is nn.Linear]
    saved = [path for path, _ in model.named_modules() if any(_ends(path, name) for name in without)]
    linear = [name for name in linear if not any(name == path or name.startswith(f"{path}.") for path in saved)]
    names = [name for name in linear if not kept & set(name.split("."))]
    if not names:
        raise RecipeError(
            f"method=qlora puts torch.nn.Linear layers into 4 bits, and the body of {type(model).__name__} has "
            "none; use method=lora"
        )
    return names


def body_of(model: nn.Module) -> nn.Module:
    """The model below its head; the model itself if transformers does not separate them."""
    body = getattr(model, getattr(model, "base_model_prefix", "") or "", None)
    return body if isinstance(body, nn.Module) else model


def head_modules(model: nn.Module) -> list[str]:
    """The names of the modules outside of the body that have parameters."""
    body = body_of(model)
    if body is model:
        return []
    return [
        name for name, child in model.named_children() if child is not body and any(True for _ in child.parameters())
    ]


def head_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of the head: those outside of the body, or of the output layer. A tied one is in both."""
    found = [each for name in head_modules(model) for each in model.get_submodule(name).parameters()]
    output: Any = getattr(model, "get_output_embeddings", lambda: None)()
    return found or ([] if output is None else list(output.parameters()))


def linear_layers(model: nn.Module) -> list[str]:
    """The names of linear layers in the body."""
    heads = set(head_modules(model))
    output: Any = getattr(model, "get_output_embeddings", lambda: None)()
    return [
        name
        for name, module in model.named_modules()
        if (isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D")
        and module is not output
        and name.partition(".")[0] not in heads
    ]
