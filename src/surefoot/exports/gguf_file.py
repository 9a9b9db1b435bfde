"""GGUF for models with the layers of Llama, in float32; compared in llama.cpp, or in transformers, which reads it too.

GGUF's llama rotates neighbours, transformers' numbers that are half a head apart. So the rows of queries and keys move.
"""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch

from surefoot.errors import ParityError, installing
from surefoot.exports import llama_cpp
from surefoot.exports.decode import logits_of
from surefoot.exports.formats import CannotWrite, Job, Runner, compared, need
from surefoot.exports.gguf_tokenizer import tokenizer_of
from surefoot.exports.to_llama import to_llama

NAME = "model.gguf"
TOLERANCE = 1e-5
COMPARED = "llama.cpp" if llama_cpp.is_installed() else "transformers, which reads GGUF"
MERGES = True
_LAYERS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_TURNS = "rope_freqs.weight"
"""By what llama.cpp divides the frequencies of rotary positions."""
_SCALED = ("default", "linear", "llama3")
"""Rotary positions whose frequencies do not depend on the length of a text."""
ROWS, MOST = 4, 1024
"""Texts of the example call that llama.cpp goes on from, and how many of the likeliest tokens are compared."""
FLOOR = -80.0
"""Log-probabilities below this are taken as equal: llama.cpp computes probabilities, which are zero in float32."""
SAMPLE = "def f(x):\n\treturn x**2  # don't\r\n\n   1234567 3.14 IT'S Café naïve 你好 фы 🙂 end  "
"""A text that tokenizers split in different ways."""


def write(job: Job, path: Path) -> str:
    """Writes config, tokenizer and tensors. Where a tokenizer is unknown, tokens have numbers for names."""
    library = need("gguf", "export", "GGUF")
    config, tensors = _llama(job)
    tokenizer, turns = tokenizer_of(job.recipe), _turns(job.merged, config)
    file = library.GGUFWriter(str(path), "llama")
    file.add_name(job.recipe.name)
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(config.num_hidden_layers)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_rope_dimension_count(config.head_dim)
    file.add_rope_freq_base(config.rope_parameters["rope_theta"])
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_vocab_size(config.vocab_size)
    file.add_file_type(library.LlamaFileType.ALL_F32)
    tokenizer.add_to(file, config.vocab_size)
    if turns is not None:
        file.add_tensor(_TURNS, turns.numpy())
    for name, tensor in tensors.items():
        file.add_tensor(_name(name), _rows(name, tensor, config).float().cpu().contiguous().numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return f"float32; {tokenizer.said}"


def difference(job: Job, path: Path) -> float:
    """In llama.cpp where it is installed, else in transformers."""
    return _in_llama_cpp(job, path) if llama_cpp.is_installed() else compared(runner(job, path), job.calls)


def runner(job: Job, path: Path) -> Runner:
    """Loads the file with transformers, which moves the rows back."""
    library = need("transformers", "hf", "comparing GGUF")
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # it draws bars
        warnings.simplefilter("ignore")
        model = library.LlamaForCausalLM.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True).eval()
    if isinstance(job.merged, library.PreTrainedModel):
        return lambda call: call.of(model)
    return lambda call: logits_of(model(call.tensors[0]))


def first_module(job: Job, path: Path, tolerance: float) -> str:
    """The first tensor that differs, since every module is one."""
    library = need("gguf", "export", "GGUF")
    config, tensors = _llama(job)
    there = {each.name: torch.from_numpy(each.data.copy()) for each in library.GGUFReader(str(path)).tensors}
    for name, tensor in tensors.items():
        if not torch.equal(there[_name(name)], _rows(name, tensor, config).float().cpu()):
            return name
    return "none: every tensor is the model's"


def context_of(job: Job) -> int:
    """The most tokens of a text."""
    longest: int = _llama(job)[0].max_position_embeddings
    return longest


def vocabulary_of(job: Job) -> int:
    """How many tokens the file knows."""
    count: int = _llama(job)[0].vocab_size
    return count


def _llama(job: Job) -> tuple[Any, dict[str, torch.Tensor]]:
    need("transformers", "hf", "comparing GGUF")
    found = to_llama(job.merged)
    if found is not None:
        return found[0], found[1]
    if getattr(getattr(job.merged, "config", None), "model_type", "") == "llama":
        state = job.merged.state_dict()
        return job.merged.config, {name: each for name, each in state.items() if _known(name)}
    raise CannotWrite("it has other layers than Llama; GGUF has a list of architectures, and export knows llama")


def _known(name: str) -> bool:
    return name.removesuffix(".weight") in _WHOLE or name.startswith("model.layers.")


def _name(name: str) -> str:
    layer, _, kind = name.rpartition(".")
    if (whole := _WHOLE.get(layer)) is not None:
        return f"{whole}.{kind}"
    number, _, layer = layer.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{_LAYERS[layer]}.{kind}"


def _rows(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """From halves to neighbours, for queries and keys."""
    if not name.rpartition(".")[0].endswith(("q_proj", "k_proj")):
        return tensor
    return tensor.unflatten(0, (-1, 2, config.head_dim // 2)).transpose(1, 2).flatten(0, 2)


def _turns(network: Any, config: Any) -> torch.Tensor | None:
    """By what the frequencies of a model of transformers are smaller than those of its base; None if they are not."""
    kind = config.rope_parameters.get("rope_type", "default")
    if kind not in _SCALED:
        raise CannotWrite(f"its rotary positions are of the kind {kind!r}; export knows {', '.join(_SCALED)}")
    if kind == "default":
        return None
    if not llama_cpp.is_installed():
        raise CannotWrite(
            f"its rotary positions are of the kind {kind!r}, which transformers does not read from GGUF; "
            f"{installing(llama_cpp.EXTRA, llama_cpp.PACKAGE)} to compare it in llama.cpp"
        )
    powers = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    return config.rope_parameters["rope_theta"] ** -powers / network.model.rotary_emb.inv_freq.float().cpu()


def _in_llama_cpp(job: Job, path: Path) -> float:
    """The largest difference of log-probabilities, relative to the largest, after three lengths of some texts.

    Raises `ParityError` if llama.cpp makes other tokens of a text than the tokenizer.
    """
    rows = job.call.kwargs.get("input_ids", job.call.tensors[0])[:ROWS]
    longest = min(rows.shape[1], _llama(job)[0].max_position_embeddings - 1)
    prompts = [row[:length].tolist() for row in rows for length in sorted({1, (longest + 1) // 2, longest})]
    encode = tokenizer_of(job.recipe).encode
    ran = llama_cpp.run(path, [SAMPLE] if encode else [], prompts, most=MOST)
    if encode and ran.tokens != [encode(SAMPLE)]:
        raise ParityError(
            f"llama.cpp makes other tokens of a text with {path} than the model's tokenizer; do not use it: "
            f"{ran.tokens[0]}, not {encode(SAMPLE)}, of {SAMPLE!r}"
        )
    return max(_apart(job, prompt, made) for prompt, made in zip(prompts, ran.expected, strict=True))


def _apart(job: Job, prompt: list[int], made: dict[int, float]) -> float:
    device = next((each.device for each in job.network.parameters()), torch.device("cpu"))
    with torch.no_grad():
        logits = logits_of(job.network(torch.tensor([prompt], device=device)))[0, -1].cpu().double()
    expected = logits.log_softmax(dim=-1).clamp(min=FLOOR).cpu()
    largest = expected.abs().max().item()
    return max(abs(expected[token].item() - max(found, FLOOR)) for token, found in made.items()) / largest
