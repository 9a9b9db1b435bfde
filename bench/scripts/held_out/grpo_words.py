"""Trains a small Llama by GRPO with two reward functions, generating with transformers (no server).

Needs transformers, trl, datasets.
"""

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

torch.manual_seed(0)
VOCAB = 1500
vocab = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3, **{f"v{i}": i + 4 for i in range(VOCAB - 4)}}
backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=backend,
    pad_token="<pad>",
    bos_token="<bos>",
    eos_token="<eos>",
    unk_token="<unk>",
    padding_side="left",
)

g = torch.Generator().manual_seed(1)
prompts = []
for _ in range(24):
    n = int(torch.randint(4, 14, (1,), generator=g))
    prompts.append(" ".join(f"v{int(i)}" for i in torch.randint(0, VOCAB - 4, (n,), generator=g)))


def reward_even(completions, **kwargs):
    """The share of words whose number is even."""
    scores = []
    for text in completions:
        numbers = [int(w[1:]) for w in text.split() if w.startswith("v")]
        scores.append(sum(n % 2 == 0 for n in numbers) / max(len(numbers), 1))
    return scores


def reward_varied(completions, **kwargs):
    return [len(set(text.split())) / 16 for text in completions]


model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
)
args = GRPOConfig(
    output_dir="grpo",
    per_device_train_batch_size=8,
    num_generations=4,
    max_completion_length=16,
    max_steps=4,
    learning_rate=1e-5,
    loss_type="dapo",
    scale_rewards="batch",
    temperature=0.9,
    reward_weights=[1.0, 0.5],
    logging_steps=1,
    save_strategy="no",
    bf16=torch.cuda.is_available(),
    report_to="none",
)
trainer = GRPOTrainer(
    model=model,
    reward_funcs=[reward_even, reward_varied],
    args=args,
    train_dataset=Dataset.from_dict({"prompt": prompts}),
    processing_class=tokenizer,
)
trainer.train()
print("rewards:", [round(h["reward"], 3) for h in trainer.state.log_history if "reward" in h])
