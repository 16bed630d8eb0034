# SPDX-License-Identifier: BSD-3-Clause
"""The version: the only place that states it.  The build reads it without importing."""

__version__ = "0.1.0"
