"""Engine: what observers stand on: the scene, calls of torch's functions, weak notes on tensors, runs on copies."""
