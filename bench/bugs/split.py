"""The split: which base programs are held out, settled by their names before any of them was written.

Checks are tuned on the programs in `tuning/` and on nothing else. A base is held out with all that is made of it.
No check is changed for what is seen of held-out programs; those that were looked into move to the other side. So did
the first round, and the second after it was run; what is held out is the third, named here before its first line was
written, by someone who had read no check.
"""

import hashlib

HELD_OUT = (
    # scripts and recipes into which bugs are planted
    *("accelerate_reviews", "bert_spans", "crop_maps", "ctc_tones", "ddp_regions", "ddpm_strokes", "flower_mlp"),
    *("func_moons", "gnn_molecules", "gpt_dates", "house_table", "lightning_sensors", "llama_counting"),
    *("load_forecast", "lstm_names", "music_recipe", "reinforce_cart", "resnet_bottles", "resume_words"),
    *("seq2seq_clock", "simclr_shapes", "stamp_recipe", "stream_logs", "student_leaves", "tiles_cnn"),
    *("trainer_commands", "two_tower_books", "unet_roads", "vae_faces", "vit_dominoes", "wine_recipe"),
    # scripts that only look buggy
    *("bn_eval_finetune", "critic_penalty", "gan_spirals", "growing_lengths", "idle_experts", "lora_rows"),
    *("maml_sines", "overfit_one_batch", "random_label_smoke", "shared_depth", "slow_teacher", "soft_q_targets"),
    *("sparse_adam_tags", "stop_gradient_pair", "straight_bits", "tied_vocabulary", "warm_restarts"),
)
"""The bases of the third round."""


def digest(name: str) -> int:
    """A number that a name gives, to choose and to order by."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def held_out(base: str) -> bool:
    return base in HELD_OUT


def folder(base: str) -> str:
    """Where the file of a base program lies."""
    return "held_out" if held_out(base) else "tuning"
