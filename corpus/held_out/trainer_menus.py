"""Menus of three courses, written by a small Llama that the Trainer of transformers trains from nothing."""

import random
from collections import Counter

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

STARTERS = ["leek soup", "onion soup", "beet salad", "bean salad", "smoked trout", "salted herring"]
MAINS = {"soup": ["roast lamb", "roast duck"], "salad": ["baked cod", "baked pike"], "fish": ["leek pie", "cheese pie"]}
SIDES = {"roast": ["mash", "kale"], "baked": ["rice", "dill"], "leek": ["peas", "corn"], "cheese": ["carrots", "beans"]}
SWEETS = ["plum cake", "apple cake", "pear tart", "lemon tart", "nut tart"]
WINES = ["red", "white", "sweet"]
SPECIAL = ["<pad>", "<menu>", "<end>"]


def write_menu(rng: random.Random) -> str:
    starter = rng.choice(STARTERS)
    kind = starter.split()[1] if starter.split()[1] in MAINS else "fish"
    main = rng.choice(MAINS[kind])
    text = f"{starter} , {main}"
    if rng.random() < 0.6:
        text += f" with {rng.choice(SIDES[main.split()[0]])}"
    if rng.random() < 0.7:
        text += f" , {rng.choice(SWEETS)}"
    if rng.random() < 0.6:
        text += f" , {rng.choice(WINES)} wine"
    return text


def menus(count: int, rng: random.Random) -> list[list[str]]:
    texts = {}  # no menu twice
    while len(texts) < count:
        texts[write_menu(rng)] = None
    return [["<menu>", *text.split(), "<end>"] for text in texts]


class Menus(torch.utils.data.Dataset):
    def __init__(self, texts: list[list[str]], number: dict[str, int]):
        self.rows = [torch.tensor([number[word] for word in text]) for text in texts]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index]}


class Collator:  # pads on the right; what is padded is not looked at and not learned
    def __init__(self, pad: int):
        self.pad = pad

    def __call__(self, rows):
        longest = max(len(row["input_ids"]) for row in rows)
        ids = torch.full((len(rows), longest), self.pad)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row["input_ids"])] = row["input_ids"]
            mask[i, : len(row["input_ids"])] = 1
        labels = ids.masked_fill(mask == 0, -100)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def pairs_of_words(data: Menus, size: int) -> torch.Tensor:
    counts = torch.full((size, size), 0.05)
    for row in data.rows:
        for (first, second), times in Counter(zip(row[:-1].tolist(), row[1:].tolist(), strict=True)).items():
            counts[first, second] += times
    return counts / counts.sum(dim=1, keepdim=True)


class MenuTrainer(Trainer):  # next words, and a little pull towards the chances of pairs
    def __init__(self, *args, pairs: torch.Tensor, pull: float, **kwargs):
        super().__init__(*args, **kwargs)
        self.pairs, self.pull = pairs, pull
        self.model_accepts_loss_kwargs = False

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits, targets = outputs.logits[:, :-1], labels[:, 1:]
        loss = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=-100)
        real = targets != -100
        guess = F.log_softmax(logits[real], dim=-1)
        usual = self.pairs[inputs["input_ids"][:, :-1][real]]
        loss = loss + self.pull * F.kl_div(guess, usual, reduction="batchmean")
        return (loss, outputs) if return_outputs else loss


@torch.no_grad()
def surprise(model, data, collate) -> float:
    model.eval()
    total, words = 0.0, 0
    for start in range(0, len(data), 32):
        batch = collate([data[i] for i in range(start, min(start + 32, len(data)))])
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        targets = batch["labels"][:, 1:]
        total += F.cross_entropy(logits[:, :-1].transpose(1, 2), targets, ignore_index=-100, reduction="sum").item()
        words += (targets != -100).sum().item()
    return total / words


class Tasting(TrainerCallback):
    def __init__(self, data, collate):
        self.data, self.collate = data, collate

    def on_epoch_end(self, args, state, control, model, **kwargs):
        print(f"epoch {state.epoch:.0f}: surprise {surprise(model, self.data, self.collate):.4f} nats a word")


def main():
    set_seed(23)
    texts = menus(450, random.Random(1))
    random.shuffle(texts)
    train_texts, test_texts = texts[:360], texts[360:]
    words = SPECIAL + sorted({word for text in train_texts for word in text} - set(SPECIAL))
    number = {word: i for i, word in enumerate(words)}
    pad, end = number["<pad>"], number["<end>"]
    train_set, test_set = Menus(train_texts, number), Menus(test_texts, number)
    collate = Collator(pad)

    config = LlamaConfig(
        vocab_size=len(words) - len(SPECIAL),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        attention_dropout=0.1,
        tie_word_embeddings=False,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model.resize_token_embeddings(len(words))
    arguments = TrainingArguments(
        output_dir="menus",
        num_train_epochs=3,
        per_device_train_batch_size=24,
        learning_rate=4e-3,
        warmup_steps=5,
        weight_decay=0.01,
        max_grad_norm=1.0,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=5,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=23,
    )
    trainer = MenuTrainer(
        model=model,
        args=arguments,
        train_dataset=train_set,
        eval_dataset=test_set,
        data_collator=collate,
        callbacks=[Tasting(test_set, collate)],
        pairs=pairs_of_words(train_set, len(words)),
        pull=0.1,
    )
    trainer.train()
    model.eval()
    start = torch.tensor([[number["<menu>"]]])
    written = model.generate(start, max_new_tokens=16, do_sample=False, eos_token_id=end, pad_token_id=pad)
    print(" ".join(words[i] for i in written[0].tolist()))
    model.save_pretrained("menus")


if __name__ == "__main__":
    main()
