"""Where torch waits for other ranks, by its files and functions: what a stack shows of a rank that waits."""

COLLECTIVE_FILES = ("distributed_c10d.py", "_functional_collectives.py", "_fsdp_collectives.py")
"""Any function of these is a collective."""
BACKWARD = ("graph.py", "_engine_run_backward")
"""The file and function of a backward, in which gradients are reduced."""
DDP = ("nn/parallel/distributed.py", ("_pre_forward", "_post_forward"))
"""The file and functions of DistributedDataParallel that broadcast buffers in a forward."""
