"""The split: which base programs are held out, settled by their names before any of them was written.

Checks are tuned on the programs in `tuning/` only. A base is held out together with all programs made from it. The
figure of a round is that of one run, before any check is changed for what the round shows. When the next round is
named, the bases of this one move to `tuning/`. The eighth is held out now. It was written separately, before the checks
that were run on it, without reading their source; of earlier edits, only a few that show the format had been read.
"""

import hashlib

HELD_OUT = (
    # scripts and recipes into which bugs are planted
    *("salmon_table", "resnet_buttons", "gpt_almanac", "resume_vineyard", "ddp_weirs", "hf_bert_notices"),
    *("lstm_harbour", "recipe_lichen", "hf_llama_packing", "trainer_menus", "unet_glaciers", "lightning_bees"),
    # scripts that only look buggy
    *("penalised_critic", "adapters_on_llama", "averaged_tail", "crowded_experts", "lagged_q_network"),
    *("stateful_characters", "skip_gram_words", "tiny_gpt_loop", "imagenet_loop", "easy_first_sums"),
    *("teacher_of_tones", "mirrored_views", "hidden_patches", "noise_to_petals", "warmed_up_vae"),
    *("blended_images", "few_shot_inner", "clipped_ratios", "citation_graph", "closure_fit"),
    *("stilled_backbone", "joined_documents", "preferred_answers", "captions_and_pictures", "sharpness_steps"),
    *("tokens_over_groups", "stopped_and_resumed", "five_folds", "weighed_tasks", "reversed_gradients"),
)
"""The bases of the eighth round."""


def digest(name: str) -> int:
    """A number that a name gives, to choose and to order by."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def held_out(base: str) -> bool:
    return base in HELD_OUT


def folder(base: str) -> str:
    """Where the file of a base program lies."""
    return "held_out" if held_out(base) else "tuning"
