"""GGUF for models with the layers of Llama, in their own number format; compared in transformers, which reads it too.

GGUF's llama rotates neighbours, transformers' numbers that are half a head apart. So the rows of queries and keys move.
"""

from __future__ import annotations

import io
import json
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch

from surefoot.exports.byte_tokenizer import END, letters
from surefoot.exports.decode import logits_of
from surefoot.exports.formats import CannotWrite, Job, Runner, need
from surefoot.exports.text_of_run import Text, text_of
from surefoot.exports.to_llama import to_llama

NAME = "model.gguf"
TOLERANCE = 1e-5
COMPARED = "transformers, which reads GGUF"
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
NORMAL, CONTROL, UNUSED = 1, 3, 5
"""Types of tokens in GGUF."""


def write(job: Job, path: Path) -> str:
    """Writes config, tokenizer and tensors. Where a tokenizer is unknown, tokens have numbers for names."""
    library = need("gguf", "export", "GGUF")
    config, tensors = _llama(job)
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
    said = _add_tokenizer(file, text_of(job.recipe), config.vocab_size)
    for name, tensor in tensors.items():
        file.add_tensor(_name(name), _rows(name, tensor, config).float().cpu().contiguous().numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return f"float32; {said}"


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
    if (whole := _WHOLE.get(name.removesuffix(".weight"))) is not None:
        return f"{whole}.weight"
    number, _, layer = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
    return f"blk.{number}.{_LAYERS[layer]}.weight"


def _rows(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """From halves to neighbours, for queries and keys."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return tensor
    return tensor.unflatten(0, (-1, 2, config.head_dim // 2)).transpose(1, 2).flatten(0, 2)


def _add_tokenizer(file: Any, text: Text, vocabulary: int) -> str:
    tokens, merges, said = _tokens(text)
    kinds = [CONTROL if token == END else NORMAL for token in tokens]
    kinds += [UNUSED] * (vocabulary - len(tokens))
    tokens = [*tokens, *(f"<unused{number}>" for number in range(len(tokens), vocabulary))]
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("default")
    file.add_token_list(tokens)
    file.add_token_types(kinds)
    file.add_token_merges(merges)
    if text.end_of_document is not None:
        file.add_bos_token_id(text.end_of_document)
        file.add_eos_token_id(text.end_of_document)
    file.add_add_bos_token(False)
    return said


def _tokens(text: Text) -> tuple[list[str], list[str], str]:
    """The tokens in order, the merges as text, and what they are."""
    if text.tokenizer is not None:
        read = json.loads(text.tokenizer.read_bytes())
        vocabulary = {**read["model"]["vocab"], **{each["content"]: each["id"] for each in read["added_tokens"]}}
        merges = [each if isinstance(each, str) else " ".join(each) for each in read["model"]["merges"]]
        return sorted(vocabulary, key=lambda token: vocabulary[token]), merges, "tokenizer of the corpus"
    if text.kind == "bytes":
        return [*letters(), *([END] if text.end_of_document is not None else [])], [], "a tokenizer of bytes"
    return [], [], "no tokenizer"
