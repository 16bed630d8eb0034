# SPDX-License-Identifier: BSD-3-Clause
"""Defaults that users may read."""

from datetime import timedelta

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]

default_pg_timeout = timedelta(minutes=30)
# Without NCCL; torch has ten minutes where it is built in.
default_pg_nccl_timeout: timedelta | None = None
