"""The split: which base programs are held out, settled by their names before any of them was written.

Checks are tuned on the programs in `tuning/` and on nothing else. A base is held out with all that is made of it.
No check is changed for what is seen of held-out programs; those that were looked into move to the other side. So did
the whole first round; what is held out is the second, named here before its first line was written.
"""

import hashlib

HELD_OUT = (
    # scripts and recipes into which bugs are planted
    *("accelerate_decoder", "amp_scaler_glyphs", "bert_intents", "conv_recipe", "ddp_blocks", "decoder_recipe"),
    *("double_dqn_maze", "gru_recipe", "lightning_gru", "llama_instruct", "llama_stories", "mean_teacher", "ocr_lines"),
    *("packed_documents", "patch_transformer", "pos_tagger", "resnet_plates", "seasonal_gru", "segment_blobs"),
    *("sensor_stream", "tabular_churn", "tabular_recipe", "trainer_bert", "two_views", "wearable_mlp", "word_vectors"),
    # scripts that only look buggy
    *("binary_codes", "clipped_policy", "curriculum_sums", "frozen_norms", "gated_experts", "hinge_gan", "keyed_cache"),
    *("low_rank_merge", "mixed_labels", "probe_head", "r1_penalty", "rate_finder", "resume_midway", "sparse_bags"),
    *("tied_autoencoder", "twin_critics", "unrolled_inner", "weight_averages"),
)
"""The bases of the second round."""


def digest(name: str) -> int:
    """A number that a name gives, to choose and to order by."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def held_out(base: str) -> bool:
    return base in HELD_OUT


def folder(base: str) -> str:
    """Where the file of a base program lies."""
    return "held_out" if held_out(base) else "tuning"
