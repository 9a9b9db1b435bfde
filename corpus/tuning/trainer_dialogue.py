"""Short dialogues for a tiny Llama under the Hugging Face Trainer: ids in one flat array, only replies are learned."""

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

PAD, USER, BOT, END = 0, 1, 2, 3
FIRST, VOCAB, IGNORED = 4, 320, -100


class Dialogues(Dataset):
    """The user names some things; the bot repeats them in order, each followed by its partner, and ends."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        flat, self.ends = [], [0]
        for _ in range(count):
            things = FIRST + 2 * rng.integers(0, (VOCAB - FIRST) // 2, rng.integers(2, 6))
            reply = np.stack([things, things + 1], axis=1).ravel()
            flat += [USER, *things, BOT, *reply, END]
            self.ends.append(len(flat))
        self.flat = np.array(flat).astype(np.uint16)

    def __len__(self):
        return len(self.ends) - 1

    def __getitem__(self, i):
        ids = self.flat[self.ends[i] : self.ends[i + 1]].astype(np.int64).tolist()
        prompt = ids.index(BOT) + 1
        return {"ids": ids, "labels": [IGNORED] * prompt + ids[prompt:]}


class Collator:
    def __call__(self, features):
        ids = pad_sequence([torch.tensor(f["ids"]) for f in features], batch_first=True, padding_value=PAD)
        labels = pad_sequence([torch.tensor(f["labels"]) for f in features], batch_first=True, padding_value=IGNORED)
        sizes = torch.tensor([len(f["ids"]) for f in features])
        mask = (torch.arange(ids.shape[1]) < sizes[:, None]).long()
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def make_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=PAD,
        bos_token_id=USER,
        eos_token_id=END,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def main():
    set_seed(55)
    model = make_model()
    args = TrainingArguments(
        output_dir="dialogue",
        max_steps=40,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=6e-3,
        lr_scheduler_type="linear",
        warmup_steps=4,
        max_grad_norm=1.0,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Dialogues(640, seed=1),
        eval_dataset=Dialogues(36, seed=2),
        data_collator=Collator(),
    )
    trainer.train()
    print(f"held-out loss {trainer.evaluate()['eval_loss']:.3f}")


if __name__ == "__main__":
    main()
