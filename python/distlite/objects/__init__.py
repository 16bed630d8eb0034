# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects.

object_collectives  what csrc/python/objects/object_functions.c leaves to Python, and
                    what has no room in the first exchange
object_results      the forms that return their results, for distlite.functional
object_call         who takes part, who may send pickles, and the first exchange
object_message      objects as a stream of bytes and the memory of large arrays
safe_codec          the codec of the safe mode, which runs no code of others
"""
