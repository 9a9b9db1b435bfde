"""The files that `surefoot init` writes: complete recipes and a script, each short enough to read first."""
