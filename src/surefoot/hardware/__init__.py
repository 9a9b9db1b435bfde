"""Devices as data: every number with its source; unknown stays unknown."""

from surefoot.hardware.datasheet import Datasheet, datasheet, known_devices

__all__ = ["Datasheet", "datasheet", "known_devices"]
