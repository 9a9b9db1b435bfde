"""The same work, trained by surefoot, by hand and by three peers.

A trainer here is one function, `train(recipe, job, listener) -> Trained`, in a file of its own:

| file               | how it trains, saves and resumes                                                           |
|--------------------|--------------------------------------------------------------------------------------------|
| `by_surefoot.py`   | `surefoot.train`; the same call goes on                                                    |
| `by_hand.py`       | a loop of forty lines in plain torch; it saves nothing                                     |
| `by_lightning.py`  | `Trainer.fit`, `ModelCheckpoint`, `ckpt_path`, torchdata's `StatefulDataLoader`            |
| `by_accelerate.py` | `Accelerator.prepare`, `save_state`, `load_state`, `use_stateful_dataloader=True`          |
| `by_hf_trainer.py` | `Trainer.train`, `should_save`, `resume_from_checkpoint`; its defaults                      |

A trainer of your own is a command, given the name of a file that holds a job; see `job.py`.
"""
