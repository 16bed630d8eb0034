# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects.

object_collectives  the public functions
object_p2p          lists of objects from one rank to another
object_headers        how each rank's objects are encoded, which all ranks learn first
object_message      objects as a stream of bytes and the memory of large arrays
object_trust        who may send pickles
object_transfer     what headers have no room for: streams, then large arrays
safe_encode         the codec of the safe mode, which runs no code of others
safe_decode         its other half
"""
