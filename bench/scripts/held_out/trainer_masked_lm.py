"""Trains a RoBERTa from scratch as a masked language model, with a Trainer subclass that adds its own loss term.

Needs transformers, datasets.
"""

import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    Trainer,
    TrainingArguments,
)


class ZLossTrainer(Trainer):
    """Adds the square of the log-partition to the loss."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits.float()
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))
        loss = loss + 1e-4 * torch.logsumexp(logits, -1).pow(2).mean()
        return (loss, outputs) if return_outputs else loss


def corpus(n=400):
    letters = "abcdefghij"
    words = ["".join(random.choices(letters, k=random.randint(2, 6))) for _ in range(1500)]
    return [" ".join(random.choices(words, k=random.randint(30, 120))) for _ in range(n)]


def train_tokenizer(texts):
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tok.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1200, special_tokens=special))
    return PreTrainedTokenizerFast(
        tokenizer_object=tok,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        cls_token="<s>",
        sep_token="</s>",
    )


def main():
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(
        output_dir="mlm",
        max_steps=5,
        per_device_train_batch_size=12,
        learning_rate=3e-4,
        logging_steps=1,
        save_steps=5,
        report_to="none",
    )
    (args,) = parser.parse_args_into_dataclasses()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    texts = corpus()
    tokenizer = train_tokenizer(texts)
    data = Dataset.from_dict({"text": texts}).map(
        lambda b: tokenizer(b["text"], truncation=True, max_length=128, return_special_tokens_mask=True),
        batched=True,
        remove_columns=["text"],
    )
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=160,
        num_hidden_layers=4,
        num_attention_heads=5,
        intermediate_size=640,
        max_position_embeddings=140,
        type_vocab_size=1,
    )
    trainer = ZLossTrainer(
        model=RobertaForMaskedLM(config),
        args=args,
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=0.15, pad_to_multiple_of=8),
        processing_class=tokenizer,
    )
    print(trainer.train().metrics)


if __name__ == "__main__":
    main()
