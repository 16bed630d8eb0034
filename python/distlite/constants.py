# SPDX-License-Identifier: BSD-3-Clause
"""Defaults that users may read."""

from datetime import timedelta

__all__ = ["default_pg_timeout"]

default_pg_timeout = timedelta(minutes=30)
