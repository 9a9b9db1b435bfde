"""Text classification with the Hugging Face Trainer: a tiny BERT from a config, own vocabulary, made-up reviews."""
import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

LABELS = ["bad", "mixed", "good"]
GOOD = ["great", "lovely", "superb", "solid", "fun", "crisp"]
BAD = ["awful", "dull", "broken", "poor", "noisy", "weak"]
THINGS = ["screen", "sound", "story", "battery", "cover", "hinge", "plot", "keys"]
FILLER = ["the", "a", "is", "was", "and", "i", "think", "really", "for", "me", "it", "then"]
VOCAB = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "not", "overall"] + GOOD + BAD + THINGS + FILLER)}
MAX_LEN = 24


def write_review(rng):
    """Some chat about things, then 'overall' and the verdict; 'not' turns a word round. Only the verdict counts."""
    words = []
    for _ in range(rng.integers(1, 4)):
        words += [rng.choice(FILLER), rng.choice(THINGS), rng.choice(FILLER), rng.choice(GOOD + BAD)]
    label = int(rng.integers(3))
    words.append("overall")
    signs = {0: (-1, -1), 1: (1, -1), 2: (1, 1)}[label]
    for s in rng.permutation(signs):
        turned = rng.random() < 0.25
        words += (["not"] if turned else []) + [rng.choice(GOOD if (s > 0) != turned else BAD)]
    return words, label


class Reviews(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = [write_review(rng) for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        words, label = self.items[i]
        ids = [VOCAB[w] for w in words][-(MAX_LEN - 2):]
        return {"input_ids": [VOCAB["[CLS]"]] + ids + [VOCAB["[SEP]"]], "label": label}


def collate(items):
    longest = max(len(x["input_ids"]) for x in items)
    ids = torch.zeros(len(items), longest, dtype=torch.long)
    mask = torch.zeros(len(items), longest, dtype=torch.long)
    for row, x in enumerate(items):
        n = len(x["input_ids"])
        ids[row, :n] = torch.tensor(x["input_ids"])
        mask[row, :n] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([x["label"] for x in items])}


def compute_metrics(output):
    pred, gold = output.predictions.argmax(axis=-1), output.label_ids
    f1 = []
    for c in range(len(LABELS)):
        tp = ((pred == c) & (gold == c)).sum()
        f1.append(2 * tp / max((pred == c).sum() + (gold == c).sum(), 1))
    return {"accuracy": (pred == gold).mean(), "macro_f1": float(np.mean(f1))}


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step}: loss {float(logs['loss']):.4f}")


def build_model():
    config = BertConfig(vocab_size=len(VOCAB), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=MAX_LEN, num_labels=len(LABELS),
                        initializer_range=0.1, hidden_dropout_prob=0.05, attention_probs_dropout_prob=0.0)
    return BertForSequenceClassification(config)


def show(title, metrics):
    print(f"{title}: loss {metrics['eval_loss']:.4f}, accuracy {metrics['eval_accuracy']:.4f}, macro F1 {metrics['eval_macro_f1']:.4f}")


def main():
    set_seed(6)
    train, test = Reviews(700, seed=1), Reviews(300, seed=2)
    args = TrainingArguments(
        output_dir="reviews_out", num_train_epochs=8, per_device_train_batch_size=32, per_device_eval_batch_size=100,
        learning_rate=5e-3, weight_decay=0.01, warmup_steps=15, lr_scheduler_type="linear", logging_steps=40,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, seed=6)
    trainer = Trainer(model=build_model(), args=args, train_dataset=train, eval_dataset=test, data_collator=collate,
                      compute_metrics=compute_metrics)
    trainer.remove_callback(next(c for c in trainer.callback_handler.callbacks if type(c).__name__ == "PrinterCallback"))
    show("untrained", trainer.evaluate())
    trainer.add_callback(Report())
    trainer.train()
    show("trained", trainer.evaluate())


if __name__ == "__main__":
    main()
