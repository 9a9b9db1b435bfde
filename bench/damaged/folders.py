"""Folders of others: a Hugging Face folder and a folder of tasks, damaged or hostile, and read by who reads them.

Nothing in them has a hash. So what parses may be shown; but nothing of it may be executed, no template may run for
ever or take all memory, and a task that names code must be refused.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from damaged import mutations
from damaged.asking import Answer, Place, ask
from damaged.mutations import Mutation, evil_source
from damaged.trying import Verdict, ending

COMMANDS: dict[str, list[str]] = {
    "chat": ["data", "chat", "talks.jsonl", "--model", "model", "--to", "corpus", "--context", "64"],
    "generate": ["generate", "model", "two and two", "--tokens", "2"],
    "tasks": ["evaluate", "model", "--tasks", "tasks"],
}
READERS = {"tokenizers": ("chat", "generate", "tasks"), "templates": ("chat",), "tasks": ("tasks",)}
"""Which commands read what is damaged."""
ABSENT = "--tasks needs lm_eval"
"""What is said where the harness is not installed, and only of a task that was read and not refused."""
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TALK = {"messages": [{"role": "user", "content": "two and two?"}, {"role": "assistant", "content": "four"}]}
TASK = """task: letters
dataset_path: json
dataset_kwargs: {data_files: {test: tasks/letters.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - metric: acc
"""


class Folders:
    """A folder of a model, or of tasks, changed in one place."""

    name = "folders"

    def __init__(self, place: Place, seconds: float) -> None:
        self.place, self.seconds = place, seconds
        self.template = place.root / "folders"
        answer = ask(place, ["make"], seconds=300, do=partial(_write, self.template))
        self._must(answer)
        for command in COMMANDS:
            self._fresh()
            self._must(ask(place, COMMANDS[command], seconds=300))

    def _must(self, answer: Answer) -> None:
        if answer.code != 0 and ABSENT not in answer.text:
            raise RuntimeError(f"{' '.join(answer.words)} fails on an undamaged folder:\n{answer.text[-3000:]}")

    def _fresh(self) -> Path:
        mutations.empty_folder(self.place.work)
        shutil.copytree(self.template, self.place.work)
        return self.place.work

    # --------------------------------------------------------------------------------------- one try

    def once(self, draw: random.Random, *, every: bool) -> tuple[str, list[Verdict]]:
        group = draw.choice(sorted(READERS))
        commands = READERS[group] if every else [draw.choice(READERS[group])]
        state, verdicts = draw.getstate(), []
        for command in commands:
            draw.setstate(state)
            mutation = self._mutated(group, draw)
            answer = ask(self.place, COMMANDS[command], seconds=self.seconds)
            verdicts.append(_verdict(command, mutation, answer))
        return f"{group}: {mutation}", verdicts

    def _mutated(self, group: str, draw: random.Random) -> Mutation:
        while True:
            folder = self._fresh()
            if draw.random() < 0.5:
                return HOSTILE[group](folder, self.place, draw)
            file = draw.choice(FILES[group])
            kinds: dict[str, Callable[..., str | None]] = {**mutations.BYTES, **mutations.THINGS}
            if file.endswith(".json") and draw.random() < 0.6:
                kinds = {each: partial(mutations.change_json, each) for each in mutations.JSON}
            kind = draw.choice(sorted(kinds))
            about = kinds[kind](folder / file, self.place, draw)
            if about is not None:
                return Mutation(kind, file, about)


def _verdict(command: str, mutation: Mutation, answer: Answer) -> Verdict:
    if (ended := ending(answer)) is not None:
        return ended
    taken = answer.code == 0 or ABSENT in answer.text
    if taken and mutation.kind.startswith("hostile"):
        return Verdict("accepted", f"{command} took a {mutation.kind}: {mutation.about[:60]}", answer)
    return Verdict("shown" if taken else "refused", "", answer)


# ------------------------------------------------------------------------------------------- hostile ones


def task(folder: Path, place: Place, draw: random.Random) -> Mutation:
    """A task that leads the harness to code: beside it, or anywhere else."""
    (folder / "tasks" / "helper.py").write_text(evil_source(place))
    (folder / "tasks" / "script.py").write_text(evil_source(place))
    (folder / "tasks" / "base").write_text("process_docs: !function helper.f\n")
    (place.work.parent / "base.yaml").write_text("process_docs: !function work.tasks.helper.f\n")
    more = draw.choice([
        "process_docs: !function helper.f",
        "doc_to_image: !function helper.f",
        "custom_dataset: !function helper.f",
        "class: !function helper.f",
        "metadata: {a: [!function helper.f]}",
        f"description: !!python/object/apply:os.system ['touch {place.canary}']",
        "? !!python/name:os.system\n: 1",
        "include: base",
        "include: [base]",
        "include: ../../base.yaml",
        f"include: {place.work.parent / 'base.yaml'}",
        "dataset_path: tasks/script.py",
        "dataset_path: pandas",
        "  - metric: tasks/script.py",
        "generation_kwargs: {custom_generate: tasks, trust_remote_code: true}",
        "use_prompt: tasks/base.yaml:name",
    ])  # fmt: skip
    (folder / "tasks" / "letters.yaml").write_text(f"{TASK}{more}\n")
    return Mutation("hostile task", "tasks/letters.yaml", more)


def template(folder: Path, place: Place, draw: random.Random) -> Mutation:
    """A chat template without an end, one that takes all memory, or one that reaches for Python."""
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    text = draw.choice([
        loop,
        "{% if messages|length == 1 %}" + loop + "{% endif %}" + TEMPLATE,
        "{% macro again(n) %}" + loop + "{% endmacro %}{{ again(1) }}",
        "{{ 9**(9**9) }}",
        "{{ 1.5|round(10**9) }}",
        "{{ 'x' * 10**10 }}",
        "{{ 'x'.center(10**11) }}",
        "{{ '%99999999999d' % 1 }}",
        "{{ messages|batch(10**10, 'x')|list }}",
        "{% set ns = namespace(x='xxxx') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        f"{{{{ cycler.__init__.__globals__.os.system('touch {place.canary}') }}}}",
        f"{{{{ ''|attr('__class__')|attr('__mro__')|last|attr('__subclasses__')() }}}}{place.canary}",
        "{{ raise_exception('no') }}",
        "{% for",
    ])  # fmt: skip
    if draw.random() < 0.5:
        (folder / "model" / "chat_template.jinja").unlink()
        mutations.edit_json(folder / "model" / "tokenizer_config.json", chat_template=text)
    else:
        (folder / "model" / "chat_template.jinja").write_text(text)
    return Mutation("hostile template", "model/chat_template.jinja", text[:100])


def tokenizer(folder: Path, place: Place, draw: random.Random) -> Mutation:
    """A folder that brings code for its tokenizer, or a class of transformers that it is not made for.

    Without the code the tokenizer is a usual one, so this may be read; it may not be executed.
    """
    (folder / "model" / "evil.py").write_text(evil_source(place) + "class Evil: pass\n")
    fields = draw.choice([
        {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}},
        {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil"},
        {"tokenizer_class": "evil.Evil"},
        {"tokenizer_class": "os.system"},
        {"tokenizer_class": "BertTokenizer", "vocab_file": "/dev/zero"},
        {"model_max_length": -1, "padding_side": "up"},
        {"added_tokens_decoder": {"0": {"content": "x" * 10_000_000}}},
    ])  # fmt: skip
    file = draw.choice(["tokenizer_config.json", "config.json"])
    mutations.edit_json(folder / "model" / file, **fields)
    return Mutation("code", f"model/{file}", json.dumps(fields)[:100])


HOSTILE = {"tasks": task, "templates": template, "tokenizers": tokenizer}
FILES = {
    "tasks": ("tasks/letters.yaml", "tasks/letters.jsonl"),
    "templates": ("model/chat_template.jinja", "model/tokenizer_config.json"),
    "tokenizers": ("model/tokenizer.json", "model/tokenizer_config.json", "model/config.json"),
}


# ------------------------------------------------------------------------------------------- the undamaged ones


def _write(folder: Path) -> None:
    """A model of bytes with random weights, as transformers writes it, a conversation and a task."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    special = ["<s>", "<|end|>", "<|user|>", "<|assistant|>"]
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    plain.train_from_iterator(
        [], trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="<|end|>")
    made.chat_template = TEMPLATE
    made.save_pretrained(folder / "model")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=len(made), max_position_embeddings=64, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    (folder / "talks.jsonl").write_text((json.dumps(TALK) + "\n") * 4)
    (folder / "tasks").mkdir()
    (folder / "tasks" / "letters.yaml").write_text(TASK)
    row = {"question": "two", "choices": ["a", "b"], "answer": 1}
    (folder / "tasks" / "letters.jsonl").write_text((json.dumps(row) + "\n") * 3)
