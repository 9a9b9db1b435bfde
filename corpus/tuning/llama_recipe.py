"""A Hugging Face Llama as a recipe: rows of tokens, labels shifted by the model."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

from surefoot import Recipe
from surefoot.techniques.schedule import warmup_cosine

VOCABULARY = 56


def rows(samples: int, length: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    moves = torch.tensor([1, 2, 6])[torch.randint(0, 3, (samples, length), generator=generator)]
    return TensorDataset(moves.cumsum(1) % VOCABULARY)


def llama_model(layers: int, width: int, length: int) -> nn.Module:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=length,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config)


def language_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    (tokens,) = batch
    return model(input_ids=tokens, labels=tokens).loss


def llama(layers: int = 2, width: int = 32, length: int = 18, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: llama_model(layers, width, length),
        data=lambda: rows(300, length, seed=1),
        loss=language_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        schedule=warmup_cosine(warmup_steps=5),
        micro_batch_size=8,
        tokens_per_sample=length,
        max_grad_norm=1.0,
        max_steps=60,
    )
