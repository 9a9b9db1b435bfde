"""Fine-tunes a T5 to summarise with Seq2SeqTrainer, Adafactor and generation at evaluation.

Needs numpy, transformers, datasets.
"""

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
)

rng = np.random.default_rng(3)
torch.manual_seed(3)
vocab = {w: i for i, w in enumerate(["<pad>", "</s>", "<unk>"] + [f"t{i}" for i in range(2500)])}
backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=128
)


def articles(n):
    article, summary = [], []
    for _ in range(n):
        ids = rng.integers(0, 2500, rng.integers(40, 120))
        article.append(" ".join(f"t{i}" for i in ids))
        summary.append(" ".join(f"t{i}" for i in ids[::6]))
    return Dataset.from_dict({"article": article, "summary": summary})


def preprocess(examples):
    inputs = tokenizer(examples["article"], max_length=96, truncation=True)
    inputs["labels"] = tokenizer(text_target=examples["summary"], max_length=24, truncation=True)["input_ids"]
    return inputs


columns = ["article", "summary"]
train = articles(64).map(preprocess, batched=True, remove_columns=columns)
test = articles(8).map(preprocess, batched=True, remove_columns=columns)
model = T5ForConditionalGeneration(
    T5Config(
        vocab_size=len(vocab),
        d_model=128,
        d_kv=32,
        d_ff=384,
        num_layers=3,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
)


def compute_metrics(eval_pred):
    guess, labels = eval_pred
    guess = np.where(guess != -100, guess, tokenizer.pad_token_id)
    lengths = [np.count_nonzero(g != tokenizer.pad_token_id) for g in guess]
    labels = np.where(labels != -100, labels, tokenizer.pad_token_id)
    texts = tokenizer.batch_decode(labels, skip_special_tokens=True)
    return {"gen_len": float(np.mean(lengths)), "words": float(np.mean([len(t.split()) for t in texts]))}


trainer = Seq2SeqTrainer(
    model=model,
    args=Seq2SeqTrainingArguments(
        output_dir="summaries",
        eval_strategy="epoch",
        learning_rate=1e-3,
        optim="adafactor",
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        num_train_epochs=1,
        label_smoothing_factor=0.1,
        predict_with_generate=True,
        generation_max_length=8,
        logging_steps=2,
        save_strategy="no",
        bf16=torch.cuda.is_available(),
        report_to="none",
    ),
    train_dataset=train,
    eval_dataset=test,
    processing_class=tokenizer,
    data_collator=DataCollatorForSeq2Seq(tokenizer=tokenizer, model=model),
    compute_metrics=compute_metrics,
)
trainer.train()
